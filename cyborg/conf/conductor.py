# SPDX-License-Identifier: Apache-2.0
"""The owner of the database."""

from oslo_config import cfg, types

from cyborg.conf import metrics

GROUP = cfg.OptGroup('conductor', title='The owner of the database')
OPTS = [
    cfg.IntOpt('workers', min=1, default=1, help='Number of worker processes.'),
    cfg.IntOpt(
        'heartbeat_timeout',
        min=1,
        default=180,
        help='Seconds without a heartbeat after which an agent counts as down.',
    ),
    cfg.IntOpt(
        'silent_agent_timeout',
        min=0,
        default=300,
        help='Seconds without a heartbeat of an agent after which conductors reserve, in '
        'Placement, the devices of its host that only the agent can prepare: mediated devices, '
        'regions into which images can be loaded, and devices that wait to be cleaned. Otherwise '
        'servers would still be scheduled to them, and fail after bind_timeout. Devices that '
        'need no preparation are not reserved. The reservation ends when the agent is alive again. '
        'It requires [placement] in the configuration of conductors. A value below '
        'heartbeat_timeout counts as heartbeat_timeout. 0: never.',
    ),
    cfg.IntOpt(
        'bind_timeout',
        min=1,
        default=240,
        help='Seconds in which a host must prepare a device; after that the bind fails. It should '
        "be less than Nova's [DEFAULT] arq_binding_timeout, 300 seconds, so that Nova learns of "
        'the failure.',
    ),
    cfg.IntOpt(
        'attach_attempts',
        min=1,
        default=3,
        help='Number of attempts to prepare or program a device before the bind fails, and to '
        'clean a device before it is quarantined. Releasing a device is retried without limit, '
        'at growing intervals.',
    ),
    cfg.IntOpt(
        'program_timeout',
        min=1,
        default=1200,
        help='Seconds that a bind may take in addition to bind_timeout if an image must be loaded '
        "into the device first. Raise Nova's [DEFAULT] arq_binding_timeout accordingly.",
    ),
    cfg.IntOpt(
        'refused_event_timeout',
        min=1,
        default=86400,
        help='Seconds, counted from the first refusal, for which an event that Nova refuses is '
        'sent again. After that the audit reports it, and can send it again. Events are retried '
        'without limit while Nova is unavailable or rejects our credentials.',
    ),
    cfg.IntOpt(
        'unknown_server_timeout',
        min=0,
        default=30,
        help='Seconds after which a conductor asks Nova whether a server still exists that had no '
        'host when its requests were bound, and deletes the requests if it does not: Nova leaves '
        'them behind if a server is deleted at that stage of its build. A conductor that starts '
        'asks about every server whose requests have changed in the last ten minutes, since '
        'another one may have been stopped before it asked. This needs the role admin in [nova]. '
        '0: never. Set it to 0 if a service other than Nova binds requests.',
    ),
    cfg.IntOpt(
        'initial_request_timeout',
        min=0,
        default=86400,
        help='Seconds after which an accelerator request that was never bound is deleted, so that '
        'its device profile can be deleted. 0: never.',
    ),
    cfg.BoolOpt(
        'limit_requests',
        default=False,
        help='Limit the number of accelerator requests that a project has by the limit '
        'accelerator_requests in Keystone (unified limits). It must be registered there: without '
        'it no request can be created. [oslo_limit] says how Keystone is reached.',
    ),
    cfg.IntOpt(
        'idempotency_key_lifetime',
        min=60,
        default=86400,
        help='Seconds for which a POST that is repeated with the same Idempotency-Key returns what '
        'the first one created. After that it creates something new.',
    ),
    cfg.IntOpt(
        'history_days',
        min=1,
        default=90,
        help='Days for which the history of accelerator requests is kept.',
    ),
    cfg.IntOpt(
        'audit_interval',
        min=0,
        default=600,
        help='Seconds between two audits, which compare requests and handles and log '
        'disagreements. 0: never. One conductor at a time runs the audit. cyborg-manage audit '
        'compares more, and can repair.',
    ),
    *metrics.options(
        'the results of the last sweep and the last audit, binds, tasks, events to Nova, and calls',
        ' One worker has the port and serves the metrics of all.',
    ),
    cfg.ListOpt(
        'metrics_profiles',
        default=[],
        item_type=types.String(max_length=255),
        help='Device profiles, by name, of which the metrics tell how often they fit. One '
        'conductor at a time finds that out, once a minute; it costs as much as '
        'GET /v2/device_profiles/{name}/availability for each. At most 100 are looked at. It '
        'requires [placement] in the configuration of conductors.',
    ),
    cfg.IntOpt(
        'sweep_interval',
        min=1,
        default=30,
        help='Seconds between two sweeps, which find overdue binds, tasks that a host has not '
        'received, and events to Nova that must be sent again. One conductor at a time looks for '
        'binds and tasks; each sends events.',
    ),
]
