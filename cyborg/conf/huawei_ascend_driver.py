# SPDX-License-Identifier: Apache-2.0
"""How Ascend processors are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('huawei_ascend_driver', title='How Ascend processors are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='CUSTOM_NPU', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them.'),
]
