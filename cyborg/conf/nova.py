# SPDX-License-Identifier: Apache-2.0
"""How the conductor reaches Nova."""

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = cfg.OptGroup('nova', title='How the conductor reaches Nova')
OPTS = [
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(),
]
