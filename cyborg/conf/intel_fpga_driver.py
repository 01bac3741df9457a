# SPDX-License-Identifier: Apache-2.0
"""How Intel FPGAs are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('intel_fpga_driver', title='How Intel FPGAs are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='FPGA', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them.'),
    cfg.BoolOpt('whole_cards', default=True,
                help='Whether one that could have virtual functions and has none is given out '
                     'whole. Say no where something makes them after the host has started.'),
]
