# SPDX-License-Identifier: Apache-2.0
"""Policies of device profiles."""

from cyborg.policies import base

RULES = [
    base.rule(
        'device_profile',
        'get_all',
        base.READER_OR_ADMIN,
        'List device profiles.',
        'GET /v2/device_profiles',
    ),
    base.rule(
        'device_profile',
        'get_one',
        base.READER_OR_ADMIN,
        'Show a device profile.',
        'GET /v2/device_profiles/{uuid_or_name}',
    ),
    base.rule(
        'device_profile',
        'get_availability',
        base.READER_OR_ADMIN,
        'Show how often a device profile fits now, in numbers. Hosts are shown to those who may '
        'list devices (cyborg:device:get_all).',
        'GET /v2/device_profiles/{uuid_or_name}/availability',
    ),
    base.rule(
        'device_profile',
        'create',
        base.ADMIN,
        'Create device profiles.',
        'POST /v2/device_profiles',
    ),
    base.rule(
        'device_profile',
        'update',
        base.ADMIN,
        'Change device profiles, enable or disable them, and set the projects that may use them.',
        'PATCH /v2/device_profiles/{uuid_or_name}',
    ),
    base.rule(
        'device_profile',
        'delete',
        base.ADMIN,
        'Delete device profiles.',
        'DELETE /v2/device_profiles/{uuid_or_names}',
        'DELETE /v2/device_profiles',
    ),
]
