# SPDX-License-Identifier: Apache-2.0
"""What operators know of FPGAs, and what they allow."""

from oslo_config import cfg

GROUP = cfg.OptGroup('fpga', title='What operators know of FPGAs, and what they allow')
OPTS = [
    cfg.MultiStrOpt(
        'function_kpis', default=[],
        help='Figures of a function, which are shown below the attribute function_uuid of each '
             'region that is programmed with it: its uuid, a colon, and pairs. May be given '
             'several times. Example: '
             'd8424dc4-a4a3-c413-f89e-433683f9040b:throughput_gbps=40,latency_us=3'),
    cfg.MultiStrOpt(
        'blank_images', default=[],
        help="The image that empties a region: the uuid of the region's type, or the name of a "
             'driver for all regions of its cards, a colon, and the path of a file on the host. '
             'May be given several times. Example: '
             '69528db6-eb31-577a-8c36-68f9faa081f6:/etc/cyborg/blank.gbs'),
    cfg.BoolOpt(
        'flash_cards', default=False,
        help='Allow whole cards to be programmed: the image goes into the flash of the card, '
             'which loads it when the host was switched off and on. Until then the device has a '
             'fault.'),
]
