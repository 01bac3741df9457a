# SPDX-License-Identifier: Apache-2.0
"""Authenticates callers with Keystone."""

import importlib.util
import os
import re
from collections.abc import Callable
from typing import Any

import keystonemiddleware.auth_token
import keystonemiddleware.opts
import webob
from oslo_config import cfg

from cyborg import errors
from cyborg.api import request


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register [keystone_authtoken]. By default a service token must have the role of a service."""
    for group, opts in keystonemiddleware.opts.list_auth_token_opts():
        conf.register_opts(opts, group=group)
    conf.set_default('service_token_roles_required', True, group='keystone_authtoken')


class AuthTokenMiddleware(keystonemiddleware.auth_token.AuthProtocol):
    """Keystone's middleware, with routes that need no token."""

    def __init__(self, app: Any, conf: dict[str, Any]) -> None:
        register_opts(conf.get('oslo_config_config') or cfg.CONF)
        patterns = conf.pop('acl_public_routes', '').split(',')
        self._public_routes = [
            re.compile(pattern.strip()) for pattern in patterns if pattern.strip()
        ]
        super().__init__(app, conf)
        self._require_credentials()
        self._require_files()
        self._require_cache()

    def _require_credentials(self) -> None:
        """Raises ConfigError if auth_type is not set: some releases of the middleware would then
        use a default plugin, which fails later."""
        section = self._conf.get('auth_section') or 'keystone_authtoken'
        if not self._conf.get('auth_type', group=section):
            raise errors.ConfigError(
                why=f'[{section}] auth_type is not set: set it to a keystoneauth plugin, for '
                'instance "password", with its options.'
            )

    def _require_files(self) -> None:
        """Raises ConfigError if a certificate or key cannot be read: every request would fail."""
        for option in ('cafile', 'certfile', 'keyfile'):
            path = self._conf.get(option)
            if path and not os.access(path, os.R_OK):
                raise errors.ConfigError(
                    why=f'[keystone_authtoken] {option} = {path} cannot be read.'
                )

    def _require_cache(self) -> None:
        """Raises ConfigError if the module of the cache is missing: the middleware would import it
        at the first request, and fail every request."""
        is_plain = not (
            self._conf.get('memcache_sasl_enabled') or self._conf.get('memcache_tls_enabled')
        )
        module, package = (
            ('memcache', 'python-memcached')
            if is_plain
            else ('bmemcached', 'python-binary-memcached')
        )
        if self._conf.get('memcached_servers') and not importlib.util.find_spec(module):
            raise errors.ConfigError(
                why=f'[keystone_authtoken] memcached_servers needs the module {module}, which is '
                f'not installed: pip install {package}, or unset the option.'
            )

    def process_request(self, request: webob.Request) -> webob.Response | None:
        if self._is_public(request.environ.get('PATH_INFO', '')):
            # these headers are not verified on public routes
            request.remove_auth_headers()
            return None
        return super().process_request(request)

    def _is_public(self, path: str) -> bool:
        return any(pattern.fullmatch(request.canonical(path)) for pattern in self._public_routes)

    @classmethod
    def factory(cls, global_conf: dict[str, Any], **local_conf: Any) -> Callable[[Any], Any]:
        """Returns the filter; paste calls this."""
        return lambda app: cls(app, {**global_conf, **local_conf})
