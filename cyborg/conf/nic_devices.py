# SPDX-License-Identifier: Apache-2.0
"""Which network cards are offered."""

from oslo_config import cfg

GROUP = cfg.OptGroup('nic_devices', title='Which network cards are offered')
OPTS = [
    cfg.ListOpt(
        'enabled_nic_types', default=[],
        help='Names of sections, one for each kind of set-up (x710_static), whose '
             'physical_device_mappings and function_device_mappings say which cards are on '
             'which physical network and what they do.'),
]
