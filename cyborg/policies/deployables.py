# SPDX-License-Identifier: Apache-2.0
"""Policies of deployables."""

from cyborg.policies import base

RULES = [
    base.rule(
        'deployable', 'get_all', base.MANAGER_OR_ADMIN, 'List deployables.', 'GET /v2/deployables'
    ),
    base.rule(
        'deployable',
        'get_one',
        base.MANAGER_OR_ADMIN,
        'Show a deployable.',
        'GET /v2/deployables/{uuid}',
    ),
    base.rule(
        'deployable',
        'program',
        base.ADMIN,
        'Load a bitstream into a deployable.',
        'PATCH /v2/deployables/{uuid}/program',
        'PATCH /v2/deployables/{uuid}/program/{uuid}',
    ),
]
