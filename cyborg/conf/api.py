# SPDX-License-Identifier: Apache-2.0
"""The HTTP service."""

from oslo_config import cfg

GROUP = cfg.OptGroup('api', title='HTTP, microversions and policy')
OPTS = [
    cfg.HostAddressOpt(
        'host_ip', default='127.0.0.1',
        help='Address on which cyborg-api listens when it runs without a WSGI server.'),
    cfg.PortOpt('port', default=6666, help='Port of the same.'),
    cfg.IntOpt(
        'api_workers', min=1, default=8,
        help='Threads that serve requests when cyborg-api runs without a WSGI server.'),
    cfg.BoolOpt(
        'enable_ssl_api', default=False,
        help='Not offered: cyborg-api speaks no TLS, and does not start with this. Have a proxy '
             'or a WSGI server end TLS.'),
    cfg.StrOpt(
        'public_endpoint',
        help='URL to build links from, such as https://cloud.example/accelerator. Unset: the '
             'URL of the request, which http_proxy_to_wsgi can correct behind a proxy.'),
    cfg.StrOpt('api_paste_config', default='api-paste.ini',
               help='Paste configuration of the WSGI pipelines.'),
    cfg.StrOpt(
        'auth_strategy', default='keystone', choices=[
            ('keystone', 'tokens are validated by keystonemiddleware'),
            ('noauth2', 'every caller is an administrator: for tests and all-in-one use')],
        help='How callers are known. This names the pipeline in the paste file.'),
    cfg.BoolOpt(
        'allow_remote_noauth', default=False,
        help='Let noauth2 listen on other addresses than loopback, or serve in a WSGI server. '
             'Anybody who reaches the port is then an administrator.'),
    cfg.IntOpt(
        'max_limit', min=1, default=1000,
        help='The most items in one page of a list; a client may ask for fewer with limit=.'),
    cfg.IntOpt(
        'bind_wait', min=0, default=20,
        help='Seconds for which a request to bind or to program waits for the host to prepare '
             'a device before it answers that the work goes on; before that, a bind waits as '
             'long for the host to clean up after others what it is to have.'),
    cfg.IntOpt(
        'max_waiting_binds', min=0, default=4,
        help='How many such requests of one API process may wait for hosts at a time; further '
             'ones answer at once that the work goes on, or that there is something to clean '
             'up first, so that waiting never starves reads.'),
    cfg.ListOpt(
        'extra_accel_keys', default=[],
        help='Keys allowed after accel: in device profiles besides bitstream_id, '
             'bitstream_name, function_id, function_name, attach_target, cleaning and '
             'cleaning_required. Nothing acts on them, so that requests of such a profile '
             'cannot be bound.'),
]
