# SPDX-License-Identifier: Apache-2.0
"""Who asks, when nobody checks: for tests and all-in-one use."""

from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from cyborg.api.middleware import auth_token

#: with those that Keystone would imply
ROLES = 'admin,manager,member,reader'
#: characters of a user's or a project's id: Keystone's have fewer, and more cannot be stored
LONGEST = 64


class NoAuthMiddleware:
    """Every caller is an administrator for whom a service vouches.

    A token ``user:project`` says which user of which project.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        auth_token.register_opts(cfg.CONF)
        self._service_roles = ','.join(cfg.CONF.keystone_authtoken.service_token_roles)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        user, _, project = environ.get('HTTP_X_AUTH_TOKEN', '').partition(':')
        environ |= {
            'HTTP_X_USER_ID': user[:LONGEST] or 'noauth',
            'HTTP_X_PROJECT_ID': project[:LONGEST] or 'noauth',
            'HTTP_X_ROLES': ROLES,
            'HTTP_X_SERVICE_ROLES': self._service_roles,
        }
        for scope in ('HTTP_X_DOMAIN_ID', 'HTTP_OPENSTACK_SYSTEM_SCOPE'):
            environ.pop(scope, None)
        return self._app(environ, start_response)

    @classmethod
    def factory(cls, global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Any]:
        """What paste calls."""
        return cls
