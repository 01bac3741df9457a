# SPDX-License-Identifier: Apache-2.0
"""The owner of the database."""

from oslo_config import cfg

GROUP = cfg.OptGroup('conductor', title='The owner of the database')
OPTS = [
    cfg.IntOpt('workers', min=1, default=1, help='Processes that serve messages.'),
    cfg.IntOpt(
        'heartbeat_timeout', min=1, default=180,
        help='Seconds of silence after which an agent counts as down.'),
    cfg.IntOpt(
        'bind_timeout', min=1, default=240,
        help='Seconds a host has to prepare a device before the bind fails. Nova waits '
             '[DEFAULT] arq_binding_timeout, 300 seconds, and should hear of the failure.'),
    cfg.IntOpt(
        'attach_attempts', min=1, default=3,
        help='How often a host tries to prepare or to program a device before the bind fails, '
             'and to clean a device before it is quarantined. What was prepared for a guest is '
             'released again and again until that succeeds, at ever longer intervals.'),
    cfg.IntOpt(
        'program_timeout', min=1, default=1200,
        help='Seconds that a bind may take, beyond bind_timeout, if an image must be loaded into '
             'the device first. Raise [DEFAULT] arq_binding_timeout of Nova accordingly.'),
    cfg.IntOpt(
        'refused_event_timeout', min=1, default=86400,
        help='Seconds for which an event that Nova refuses is sent again before it is given up, '
             'counted from the first refusal. The audit tells of it then, and can have it sent '
             'again. What Nova did not hear because it was away, or would not have us, is never '
             'given up.'),
    cfg.IntOpt(
        'initial_request_timeout', min=0, default=86400,
        help='Seconds after which an accelerator request that nobody has bound is deleted, so '
             'that its device profile can be deleted; 0: never.'),
    cfg.IntOpt(
        'history_days', min=1, default=90,
        help='Days for which the history of accelerator requests is kept.'),
    cfg.IntOpt(
        'audit_interval', min=0, default=600,
        help='Seconds between two comparisons of requests and handles, whose findings are '
             'logged; 0: never. One conductor at a time compares. cyborg-manage audit compares '
             'more, and mends.'),
    cfg.PortOpt(
        'metrics_port',
        help='Port on which one worker serves metrics in the format of Prometheus: what the '
             'last sweep and the last audit found. Unset: none does.'),
    cfg.HostAddressOpt('metrics_host', default='127.0.0.1', help='Address of the same.'),
    cfg.IntOpt(
        'sweep_interval', min=1, default=30,
        help='Seconds between two looks for binds that are overdue, work that hosts have '
             'forgotten, and events to Nova that are to be sent again. Of all conductors one '
             'at a time looks for binds and work.'),
]
