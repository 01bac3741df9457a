# SPDX-License-Identifier: Apache-2.0
"""Policies of agents."""

from cyborg.policies import base

RULES = [
    base.rule('agent', 'get_all', base.ADMIN, 'List agents.', 'GET /v2/agents'),
    base.rule(
        'agent', 'get_one', base.ADMIN, 'Show an agent.', 'GET /v2/agents/{uuid_or_hostname}'
    ),
]
