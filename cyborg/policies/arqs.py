# SPDX-License-Identifier: Apache-2.0
"""Policies of accelerator requests. Which requests a caller sees depends on the project instead."""

from cyborg.policies import base

RULES = [
    base.rule(
        'arq',
        'get_all',
        base.READER_OR_ADMIN,
        'List accelerator requests.',
        'GET /v2/accelerator_requests',
    ),
    base.rule(
        'arq',
        'get_one',
        base.READER_OR_ADMIN,
        'Show an accelerator request.',
        'GET /v2/accelerator_requests/{uuid}',
    ),
    base.rule(
        'arq',
        'get_history',
        base.READER_OR_ADMIN,
        'Show what happened to an accelerator request.',
        'GET /v2/accelerator_requests/{uuid}/history',
    ),
    base.rule(
        'arq',
        'create',
        base.MEMBER_OR_SERVICE,
        'Create accelerator requests.',
        'POST /v2/accelerator_requests',
    ),
    base.rule(
        'arq',
        'update',
        base.MEMBER_OR_SERVICE,
        'Bind and unbind accelerator requests; this needs a service token too.',
        'PATCH /v2/accelerator_requests',
        'PATCH /v2/accelerator_requests/{uuid}',
    ),
    base.rule(
        'arq',
        'delete',
        base.MEMBER_OR_SERVICE,
        'Delete accelerator requests; bound ones need a service token too.',
        'DELETE /v2/accelerator_requests',
        'DELETE /v2/accelerator_requests/{uuid}',
    ),
]
