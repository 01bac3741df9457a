# SPDX-License-Identifier: Apache-2.0
"""The options that services share. A driver declares its own options on its class."""

import copy
from collections.abc import Sequence

from oslo_config import cfg

from cyborg.conf import (
    agent,
    api,
    cleaning,
    conductor,
    default,
    health,
    services,
    upgrade_levels,
)

#: Groups with their options. The group None is DEFAULT.
GROUPS: tuple[tuple[cfg.OptGroup | None, Sequence[cfg.Opt]], ...] = (
    *((module.GROUP, module.OPTS) for module in (default, api, agent, conductor)),
    *services.GROUPS,
    *((module.GROUP, module.OPTS) for module in (health, cleaning, upgrade_levels)),
)


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options that services share."""
    for group, options in GROUPS:
        # a copy: oslo.config stores overrides in the group, and two ConfigOpts would share them
        conf.register_opts(options, group=copy.deepcopy(group))
