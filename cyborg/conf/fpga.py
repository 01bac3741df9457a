# SPDX-License-Identifier: Apache-2.0
"""What operators know of the functions of FPGAs."""

from oslo_config import cfg

GROUP = cfg.OptGroup('fpga', title='What operators know of the functions of FPGAs')
OPTS = [
    cfg.MultiStrOpt(
        'function_kpis', default=[],
        help='Figures of a function, which are shown below the attribute function_uuid of each '
             'region that is programmed with it: its uuid, a colon, and pairs. May be given '
             'several times. Example: '
             'd8424dc4-a4a3-c413-f89e-433683f9040b:throughput_gbps=40,latency_us=3'),
]
