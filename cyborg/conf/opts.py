# SPDX-License-Identifier: Apache-2.0
"""Entry points of oslo.config: the list of all options, and defaults of libraries."""

from oslo_config import cfg
from oslo_middleware import cors
from oslo_policy import opts as policy_opts

from cyborg import conf, library_internals

#: Services connect again soon after the broker is back. Library defaults: 2 and 30 seconds.
RECONNECTION = {'rabbit_retry_backoff': 1, 'rabbit_interval_max': 3}
#: Seconds for which a thread tries to send an answer to a queue that is missing. Callers have given
#: up by then. Library default: 60.
MISSING_REPLY_QUEUE = 5
EXPOSED = [
    'X-Auth-Token',
    'X-OpenStack-Request-ID',
    'X-Subject-Token',
    'X-Service-Token',
    'OpenStack-API-Version',
    'OpenStack-API-Minimum-Version',
    'OpenStack-API-Maximum-Version',
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Returns all groups with their options, for oslo-config-generator: those that services share
    and those of every driver that is installed."""
    # imported here: every service imports this module, and only the agent needs drivers
    from cyborg.accelerator import driver

    groups: dict[str, list[cfg.Opt]] = {}
    for group, options in conf.GROUPS:
        groups[group.name if group else 'DEFAULT'] = list(options)
    for cls in driver.installed():
        for name, options in cls.declared_options().items():
            known = groups.setdefault(name, [])
            known += [option for option in options if option not in known]
    return list(groups.items())


def set_lib_defaults() -> None:
    """Set the defaults of libraries that are different for Cyborg."""
    cors.set_defaults(
        allow_headers=[
            *EXPOSED,
            'Idempotency-Key',
            'X-Identity-Status',
            'X-Roles',
            'X-Service-Catalog',
            'X-User-Id',
            'X-Tenant-Id',
        ],
        expose_headers=EXPOSED,
        allow_methods=['GET', 'PUT', 'POST', 'DELETE', 'PATCH'],
    )
    library_internals.set_rabbit_defaults(
        **RECONNECTION, kombu_missing_consumer_retry_timeout=MISSING_REPLY_QUEUE
    )
    policy_opts.set_defaults(
        cfg.CONF, policy_file='policy.yaml', enforce_scope=True, enforce_new_defaults=True
    )
