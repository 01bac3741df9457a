# SPDX-License-Identifier: Apache-2.0
"""May this caller do that?"""

import time

from oslo_config import cfg
from oslo_policy import policy

from cyborg import errors, policies
from cyborg.context import RequestContext

#: seconds in which a changed policy file may go unnoticed, and for which a decision holds
FRESH = 1.0


class Enforcer(policy.Enforcer):
    """Looks for changed policy files once a second, not for each rule of each request, and
    remembers as long what it decided."""

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
        """Does the rule allow this to the caller?

        The target is the caller's own project: whose requests one may see is settled where the
        rows are.
        """
        self.load_rules()
        decided, key = self._decided, (rule, repr(dict(context.to_policy_values())))
        if key not in decided:
            target = {'project_id': context.project_id, 'user_id': context.user_id}
            decided[key] = bool(self.authorize(rule, target, context))
        return decided[key]


def get_enforcer(conf: cfg.ConfigOpts = cfg.CONF) -> Enforcer:
    """An enforcer that knows our rules; oslo.policy's tools call it without an argument."""
    enforcer = Enforcer(conf)
    enforcer.register_defaults(policies.list_rules())
    return enforcer


def authorize(enforcer: Enforcer, context: RequestContext, rule: str) -> None:
    """Return if the rule allows the caller, raise PolicyForbids if not.

    A token of the system or a domain has no project, and is not told by its scope alone:
    keystonemiddleware overwrites that with the scope of a service token.
    """
    if not context.project_id or not enforcer.allows(context, rule):
        raise errors.PolicyForbids(rule=rule)


def is_admin(enforcer: Enforcer, context: RequestContext) -> bool:
    """Does the deployment's policy call the caller an administrator?"""
    return enforcer.allows(context, 'admin_api')
