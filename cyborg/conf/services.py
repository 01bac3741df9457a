# SPDX-License-Identifier: Apache-2.0
"""The endpoints and credentials of Placement, Nova and Glance."""

from keystoneauth1 import loading
from oslo_config import cfg


def _options() -> list[cfg.Opt]:
    """Returns the options of keystoneauth: credentials, session and endpoint."""
    return [
        *loading.get_auth_common_conf_options(),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(
            # kolla-ansible still writes this one
            deprecated_opts={'valid-interfaces': [cfg.DeprecatedOpt('endpoint_type')]}
        ),
    ]


GROUPS = (
    (cfg.OptGroup('placement', title='How agents and conductors reach Placement'), _options()),
    (cfg.OptGroup('nova', title='How the conductor reaches Nova'), _options()),
    (cfg.OptGroup('glance', title='How the agent reaches Glance, for bitstreams'), _options()),
)
