# SPDX-License-Identifier: Apache-2.0
"""Policies of usage."""

from cyborg.policies import base

RULES = [
    base.rule(
        'usage',
        'get_all',
        base.READER_OR_ADMIN,
        "Show the accelerator-hours of the caller's own project.",
        'GET /v2/usage',
    ),
    base.rule(
        'usage',
        'get_all_projects',
        base.ADMIN,
        'Show the accelerator-hours of all projects, or of another one.',
        'GET /v2/usage',
        'GET /v2/usage?project_id={project_id}',
    ),
]
