# SPDX-License-Identifier: Apache-2.0
"""How AMD GPUs are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('amd_gpu_driver', title='How AMD GPUs are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='PGPU', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them.'),
    cfg.StrOpt('virtual_resource_class', default='VGPU', regex='^[A-Z0-9_]+$',
               help='The same, of their virtual functions.'),
    cfg.BoolOpt('whole_cards', default=True,
                help='Whether one that could have virtual functions and has none is given out '
                     'whole. Say no where something makes them after the host has started.'),
]
