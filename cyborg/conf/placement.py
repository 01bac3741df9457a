# SPDX-License-Identifier: Apache-2.0
"""How the agent reaches Placement."""

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = cfg.OptGroup('placement', title='How the agent reaches Placement')
OPTS = [
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(),
]
