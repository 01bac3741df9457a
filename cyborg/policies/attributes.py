# SPDX-License-Identifier: Apache-2.0
"""Policies of attributes."""

from cyborg.policies import base

RULES = [
    base.rule(
        'attribute', 'get_all', base.MANAGER_OR_ADMIN, 'List attributes.', 'GET /v2/attributes'
    ),
    base.rule(
        'attribute',
        'get_one',
        base.MANAGER_OR_ADMIN,
        'Show an attribute.',
        'GET /v2/attributes/{uuid}',
    ),
    base.rule(
        'attribute',
        'create',
        base.ADMIN,
        'Add an attribute to a deployable.',
        'POST /v2/attributes',
    ),
    base.rule(
        'attribute', 'delete', base.ADMIN, 'Delete an attribute.', 'DELETE /v2/attributes/{uuid}'
    ),
]
