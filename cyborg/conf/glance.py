# SPDX-License-Identifier: Apache-2.0
"""How the agent reaches Glance, for bitstreams."""

from keystoneauth1 import loading
from oslo_config import cfg

GROUP = cfg.OptGroup('glance', title='How the agent reaches Glance, for bitstreams')
OPTS = [
    *loading.get_auth_common_conf_options(),
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(),
]
