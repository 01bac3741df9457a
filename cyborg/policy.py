# SPDX-License-Identifier: Apache-2.0
"""Enforces the policy."""

import time

from oslo_config import cfg
from oslo_policy import policy

from cyborg import errors, policies
from cyborg.context import RequestContext

#: seconds between two checks for changed policy files, and the lifetime of cached decisions
FRESH = 1.0


class Enforcer(policy.Enforcer):
    """Checks for changed policy files once a second instead of at each rule, and caches decisions
    for the same time."""

    _looked_at = float('-inf')

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf)
        self._decided: dict[tuple[str, str], bool] = {}

    def load_rules(self, force_reload: bool = False) -> None:
        now = time.monotonic()
        if force_reload or now - self._looked_at >= FRESH:
            super().load_rules(force_reload)
            self._looked_at, self._decided = now, {}

    def allows(self, context: RequestContext, rule: str) -> bool:
        """Return whether the rule allows the caller.

        The target is the caller's own project. Queries filter the rows of other projects.
        """
        self.load_rules()
        decided, key = self._decided, (rule, repr(dict(context.to_policy_values())))
        if key not in decided:
            target = {'project_id': context.project_id, 'user_id': context.user_id}
            decided[key] = bool(self.authorize(rule, target, context))
        return decided[key]


def get_enforcer(conf: cfg.ConfigOpts = cfg.CONF) -> Enforcer:
    """Return an enforcer with our rules. The tools of oslo.policy call it without an argument."""
    enforcer = Enforcer(conf)
    enforcer.register_defaults(policies.list_rules())
    return enforcer


def authorize(enforcer: Enforcer, context: RequestContext, rule: str) -> None:
    """Raise PolicyForbids unless the rule allows the caller.

    Tokens with system or domain scope are refused. They have no project; the scope itself cannot
    be checked, since keystonemiddleware overwrites it with that of a service token.
    """
    if not context.project_id or not enforcer.allows(context, rule):
        raise errors.PolicyForbids(rule=rule)


def is_admin(enforcer: Enforcer, context: RequestContext) -> bool:
    """Return whether the policy makes the caller an administrator."""
    return enforcer.allows(context, 'admin_api')
