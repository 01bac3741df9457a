# SPDX-License-Identifier: Apache-2.0
"""How time cards are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('time_sync_driver', title='How time cards are offered')
OPTS = [
    cfg.StrOpt('resource_class', default='CUSTOM_HPTS', regex='^[A-Z0-9_]+$',
               help='Resource class under which Placement counts them.'),
    cfg.ListOpt('host_addresses', default=[],
                help='Addresses (0000:85:00.0) of cards that keep the time of the host itself '
                     'and are not given to guests.'),
]
