# SPDX-License-Identifier: Apache-2.0
"""The HTTP service."""

from oslo_config import cfg

from cyborg.conf import metrics

GROUP = cfg.OptGroup('api', title='HTTP, microversions and policy')
OPTS = [
    cfg.HostAddressOpt(
        'host_ip',
        default='127.0.0.1',
        help='Address on which cyborg-api listens when it runs without a WSGI server.',
    ),
    cfg.PortOpt(
        'port',
        default=6666,
        help='Port on which cyborg-api listens when it runs without a WSGI server.',
    ),
    cfg.IntOpt(
        'api_workers',
        min=1,
        default=8,
        help='Threads that serve requests when cyborg-api runs without a WSGI server.',
    ),
    cfg.BoolOpt(
        'enable_ssl_api',
        default=False,
        help='Not supported: cyborg-api does not start if this is set. Use a proxy or a WSGI '
        'server for TLS.',
    ),
    cfg.StrOpt(
        'public_endpoint',
        help='Base URL of links in responses, such as https://cloud.example/accelerator. Unset: '
        'the URL of the request, which http_proxy_to_wsgi can correct behind a proxy.',
    ),
    cfg.StrOpt(
        'api_paste_config',
        default='api-paste.ini',
        help='File with the WSGI pipelines. A name without a directory is searched in the '
        'configuration directories, then in etc/cyborg of the installation.',
    ),
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        deprecated_group='DEFAULT',
        choices=[
            ('keystone', 'tokens are validated by keystonemiddleware'),
            ('noauth2', 'every caller is an administrator: for tests and all-in-one use'),
        ],
        help='How callers are authenticated. It selects the pipeline in the paste file: main for '
        'keystone, noauth2 for noauth2.',
    ),
    cfg.BoolOpt(
        'allow_remote_noauth',
        default=False,
        help='Allow noauth2 on other addresses than loopback and in a WSGI server. Everybody who '
        'reaches the port is then an administrator.',
    ),
    cfg.BoolOpt(
        'access_log',
        default=True,
        help='Log one line for each request at the level INFO, with the logger cyborg.access: '
        'client, method, path, status, length, microversion, seconds, project and request id, '
        'and the sentence of an error. Requests of load balancers (/, /healthcheck, /metrics) are '
        'logged at the level DEBUG. Turn it off if the WSGI server logs requests.',
    ),
    *metrics.options(
        'requests with their status and duration, and calls of conductors',
        ' A WSGI server with several processes needs the environment variable '
        'PROMETHEUS_MULTIPROC_DIR with an empty directory that all of them can write: then the '
        'process that has the port serves the metrics of all. Empty the directory before each '
        'start. Under uWSGI and mod_wsgi the port is open when the application is loaded; other '
        'WSGI servers open it with the first request.',
    ),
    cfg.IntOpt(
        'max_limit',
        min=1,
        default=1000,
        help='Largest number of items in one page of a list. A client may request fewer with '
        'limit=.',
    ),
    cfg.IntOpt(
        'bind_wait',
        min=0,
        default=20,
        help='Seconds for which the API waits for the host to prepare or program a device before '
        'it answers that the work is in progress. A bind also waits up to this time for the '
        'host to clean the device after its last use.',
    ),
    cfg.IntOpt(
        'call_monitor_timeout',
        min=2,
        default=2,
        help='Seconds without a sign of life after which the API stops waiting for a conductor. A '
        'conductor that works on a call sends signs of life at half this interval, so a long call '
        'is not affected. The API repeats a call once if that is safe, and answers 503 after that. '
        'So twice this time is the longest wait when no conductor runs. Raise it if conductors '
        'are so busy that calls wait longer than this before they are started.',
    ),
    cfg.IntOpt(
        'read_timeout',
        min=1,
        default=10,
        help='Seconds in which a conductor must answer a call that changes nothing, including a '
        'repetition. Other calls have [DEFAULT] rpc_response_timeout.',
    ),
    cfg.IntOpt(
        'max_waiting_binds',
        min=0,
        default=4,
        help='Number of requests in one API process that may wait for hosts at the same time. '
        'Further ones are answered at once, so that other requests always find a free thread.',
    ),
    cfg.ListOpt(
        'extra_accel_keys',
        default=[],
        help='Keys allowed after accel: in device profiles besides bitstream_id, '
        'bitstream_name, function_id, function_name, attach_target, cleaning and '
        'cleaning_required. Cyborg does not implement them, so requests with such a profile '
        'cannot be bound.',
    ),
]
