# SPDX-License-Identifier: Apache-2.0
"""May this caller do that?"""

from oslo_config import cfg
from oslo_policy import policy

from cyborg import errors, policies
from cyborg.context import RequestContext


def get_enforcer(conf: cfg.ConfigOpts = cfg.CONF) -> policy.Enforcer:
    """An enforcer that knows our rules; oslo.policy's tools call it without an argument."""
    enforcer = policy.Enforcer(conf)
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
