# SPDX-License-Identifier: Apache-2.0
"""What the sample generator and oslo libraries ask of our options."""

from oslo_config import cfg
from oslo_middleware import cors
from oslo_policy import opts as policy_opts

from cyborg import conf

EXPOSED = ['X-Auth-Token', 'X-OpenStack-Request-ID', 'X-Subject-Token', 'X-Service-Token',
           'OpenStack-API-Version', 'OpenStack-API-Minimum-Version',
           'OpenStack-API-Maximum-Version']


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """All groups with their options, for oslo-config-generator."""
    return [(module.GROUP.name if module.GROUP else 'DEFAULT', module.OPTS)
            for module in conf.GROUPS]


def set_lib_defaults() -> None:
    """Defaults of libraries that are different for us."""
    cors.set_defaults(
        allow_headers=[*EXPOSED, 'X-Identity-Status', 'X-Roles', 'X-Service-Catalog',
                       'X-User-Id', 'X-Tenant-Id'],
        expose_headers=EXPOSED,
        allow_methods=['GET', 'PUT', 'POST', 'DELETE', 'PATCH'])
    policy_opts.set_defaults(cfg.CONF, policy_file='policy.yaml', enforce_scope=True,
                             enforce_new_defaults=True)
