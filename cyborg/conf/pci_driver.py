# SPDX-License-Identifier: Apache-2.0
"""How listed PCI functions are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('pci_driver', title='How listed PCI functions are offered')
OPTS = [
    cfg.BoolOpt('whole_cards', default=True,
                help='Whether one that could have virtual functions and has none is given out '
                     'whole. Say no where something makes them after the host has started.'),
]
