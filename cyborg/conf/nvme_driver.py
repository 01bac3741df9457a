# SPDX-License-Identifier: Apache-2.0
"""How NVMe disks are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('nvme_driver', title='How NVMe disks are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='CUSTOM_SSD', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them.'),
    cfg.ListOpt('host_addresses', default=[],
                help='Addresses (0000:c1:00.0) of disks that are for the host, though neither '
                     'mounted nor part of a volume: those of storage services, for example.'),
    cfg.BoolOpt('whole_cards', default=True,
                help='Whether one that could have virtual functions and has none is given out '
                     'whole. Say no where something makes them after the host has started.'),
]
