# SPDX-License-Identifier: Apache-2.0
"""How much the fake driver pretends to have."""

from oslo_config import cfg

GROUP = cfg.OptGroup('fake_driver', title='How much the fake driver pretends to have')
OPTS = [
    cfg.IntOpt('devices', default=1, min=0, max=256, help='How many devices there are.'),
    cfg.IntOpt('accelerators', default=16, min=1, max=255,
               help='How many guests can share each device.'),
]
