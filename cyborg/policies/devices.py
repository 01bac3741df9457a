# SPDX-License-Identifier: Apache-2.0
"""Who may see devices and take them out of service."""

from cyborg.policies import base

RULES = [
    base.rule('device', 'get_all', base.MANAGER_OR_ADMIN, 'List devices.', 'GET /v2/devices'),
    base.rule('device', 'get_one', base.MANAGER_OR_ADMIN, 'Show a device.',
              'GET /v2/devices/{uuid}'),
    base.rule('device', 'enable', base.ADMIN, 'Put a device back into service.',
              'POST /v2/devices/{uuid}/enable'),
    base.rule('device', 'disable', base.ADMIN,
              'Keep a device for maintenance: nothing new is placed on it.',
              'POST /v2/devices/{uuid}/disable'),
]
