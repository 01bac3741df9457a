# SPDX-License-Identifier: Apache-2.0
"""What makes a card count as broken."""

from oslo_config import cfg

GROUP = cfg.OptGroup('health', title='What makes a card count as broken')
OPTS = [
    cfg.IntOpt(
        'tolerated_fatal_errors', default=0, min=0,
        help='Fatal PCI errors (AER) that a card may have had since the kernel found it. With '
             'more it is reserved in Placement until it is reset or the host is rebooted.'),
    cfg.IntOpt(
        'tolerated_nonfatal_errors', default=1000, min=0,
        help='The same for errors that are not fatal; a few of them are nothing unusual.'),
]
