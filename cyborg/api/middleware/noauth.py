# SPDX-License-Identifier: Apache-2.0
"""Accepts every caller without authentication, for tests and the all-in-one mode."""

from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from cyborg.api.middleware import auth_token

#: with the roles that Keystone would imply
ROLES = 'admin,manager,member,reader'
#: characters of the id of a user or project: those of Keystone have fewer, and more cannot be
#: stored
LONGEST = 64


class NoAuthMiddleware:
    """Treats every caller as an administrator with a service token.

    A token ``user:project`` names the user and the project.
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
        response: Iterable[bytes] = self._app(environ, start_response)
        return response

    @classmethod
    def factory(cls, global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Any]:
        """Returns the filter; paste calls this."""
        return cls
