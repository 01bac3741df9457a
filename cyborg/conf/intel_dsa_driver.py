# SPDX-License-Identifier: Apache-2.0
"""How accelerators of data movement and of analytics are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('intel_dsa_driver', title='How Intel DSA and IAA are offered')
OPTS = [
    cfg.StrOpt('dsa_resource_class', default='CUSTOM_DSA', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts those of data movement (DSA).'),
    cfg.StrOpt('iaa_resource_class', default='CUSTOM_IAA', regex='^[A-Z0-9_]+$',
               help='The same, of those of analytics (IAA).'),
]
