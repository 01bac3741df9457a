# SPDX-License-Identifier: Apache-2.0
"""Every policy rule, one module per noun, as data."""

import itertools

from oslo_policy import policy

from cyborg.policies import (
    agents,
    arqs,
    attributes,
    base,
    capacity,
    deployables,
    device_profiles,
    devices,
    usage,
)


def list_rules() -> list[policy.RuleDefault]:
    """All rules, for the enforcer and for oslo.policy's tools."""
    return list(
        itertools.chain.from_iterable(
            module.RULES
            for module in (
                base,
                device_profiles,
                arqs,
                devices,
                deployables,
                attributes,
                agents,
                capacity,
                usage,
            )
        )
    )
