# SPDX-License-Identifier: Apache-2.0
"""Limits beyond which a card counts as broken."""

from oslo_config import cfg

GROUP = cfg.OptGroup('health', title='Limits beyond which a card counts as broken')
OPTS = [
    cfg.IntOpt(
        'tolerated_fatal_errors',
        default=0,
        min=0,
        help='Number of fatal PCI errors (AER) that a card may have since the kernel found it. A '
        'card with more is reserved in Placement until it is removed and the bus is rescanned, or '
        'the host is rebooted: this starts the count anew.',
    ),
    cfg.IntOpt(
        'tolerated_nonfatal_errors',
        default=1000,
        min=0,
        help='Number of non-fatal PCI errors (AER) that a card may have since the kernel found it. '
        'A few of them are usual.',
    ),
]
