# SPDX-License-Identifier: Apache-2.0
"""Policies of capacity and topology."""

from cyborg.policies import base

RULES = [
    base.rule(
        'capacity',
        'get_all',
        base.MANAGER_OR_ADMIN,
        'List the units of the cloud by model.',
        'GET /v2/capacity',
    ),
    base.rule(
        'topology',
        'get_all',
        base.ADMIN,
        'Show the devices of a host down to their units, with the servers and projects that hold '
        'them.',
        'GET /v2/topology',
    ),
]
