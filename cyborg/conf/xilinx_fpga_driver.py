# SPDX-License-Identifier: Apache-2.0
"""How Alveo cards are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('xilinx_fpga_driver', title='How Alveo cards are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='FPGA', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them.'),
]
