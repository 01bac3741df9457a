# SPDX-License-Identifier: Apache-2.0
"""May this caller do that?"""

import time

from oslo_config import cfg
from oslo_policy import policy

from cyborg import errors, policies
from cyborg.context import RequestContext

#: seconds in which a changed policy file may go unnoticed
FRESH = 1.0


class Enforcer(policy.Enforcer):
    """Looks for changed policy files once a second, not for each rule of each request."""

    _looked_at = float('-inf')

    def load_rules(self, force_reload: bool = False) -> None:
        now = time.monotonic()
        if force_reload or now - self._looked_at >= FRESH:
            super().load_rules(force_reload)
            self._looked_at = now


def get_enforcer(conf: cfg.ConfigOpts = cfg.CONF) -> policy.Enforcer:
    """An enforcer that knows our rules; oslo.policy's tools call it without an argument."""
    enforcer = Enforcer(conf)
    enforcer.register_defaults(policies.list_rules())
    return enforcer


def authorize(enforcer: policy.Enforcer, context: RequestContext, rule: str) -> None:
    """Return if the rule allows the caller, raise PolicyForbids if not.

    The target is the caller's own project: whose requests one may see is settled where the
    rows are. A token of the system or a domain has none, and is not told by its scope alone:
    keystonemiddleware overwrites that with the scope of a service token.
    """
    if not context.project_id or not enforcer.authorize(rule, _target(context), context):
        raise errors.PolicyForbids(rule=rule)


def is_admin(enforcer: policy.Enforcer, context: RequestContext) -> bool:
    """Does the deployment's policy call the caller an administrator?"""
    return bool(enforcer.authorize('admin_api', _target(context), context))


def _target(context: RequestContext) -> dict[str, str | None]:
    return {'project_id': context.project_id, 'user_id': context.user_id}
