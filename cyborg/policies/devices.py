# SPDX-License-Identifier: Apache-2.0
"""Policies of devices."""

from cyborg.policies import base

RULES = [
    base.rule('device', 'get_all', base.MANAGER_OR_ADMIN, 'List devices.', 'GET /v2/devices'),
    base.rule(
        'device', 'get_one', base.MANAGER_OR_ADMIN, 'Show a device.', 'GET /v2/devices/{uuid}'
    ),
    base.rule(
        'device',
        'enable',
        base.ADMIN,
        'Enable a device.',
        'POST /v2/devices/{uuid}/enable',
    ),
    base.rule(
        'device',
        'disable',
        base.ADMIN,
        'Disable a device: no new server is placed on it.',
        'POST /v2/devices/{uuid}/disable',
    ),
    base.rule(
        'device',
        'get_handbacks',
        base.ADMIN,
        'List the hand-backs of a device: how its handles were released and cleaned after the '
        'requests of all projects.',
        'GET /v2/devices/{uuid}/handbacks',
    ),
    base.rule(
        'device',
        'clean_handle',
        base.ADMIN,
        'Have a host clean a quarantined handle again.',
        'POST /v2/devices/{uuid}/handles/{handle}/clean',
    ),
    base.rule(
        'device',
        'release_handle',
        base.ADMIN,
        'Offer a quarantined handle again without cleaning it.',
        'POST /v2/devices/{uuid}/handles/{handle}/release',
    ),
]
