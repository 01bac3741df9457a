# SPDX-License-Identifier: Apache-2.0
"""What a controller knows about a request before it is called."""

import re
from typing import Any

import pecan.hooks
import webob
import webob.multidict
from oslo_config import cfg

from cyborg import errors, policy
from cyborg.api import faults, microversions
from cyborg.context import RequestContext

#: what the first part of a path must not look like; v2 may be left out
OTHER_VERSION = re.compile(r'v(?!2$)\d+(\.\d+)?')


def canonical(path: str) -> str:
    """The path without what means nothing: doubled or trailing slashes, ``.json``."""
    return '/' + '/'.join(filter(None, path.removesuffix('.json').split('/')))


class Request(webob.Request):
    """A request and what the hook and ``expose`` found out about it."""

    # Where pecan would look for arguments: ours are declared, and read by ``expose`` alone.
    params = webob.multidict.MultiDict()
    json = None
    # Bodies are read at once and kept small by another layer; WebOb would put larger ones into
    # files that only the collector closes.
    request_body_tempfile_limit = 2**31

    context: RequestContext
    #: everything but the root document and other versions' paths is version 2
    is_versioned = False
    version: microversions.Version | None = None
    #: where the API is mounted, without a trailing slash
    root_url: str
    #: the query parameters, checked
    query: dict[str, Any]
    #: the body, checked
    document: Any

    @property
    def segments(self) -> list[str]:
        """The parts of the path, from the version on, which may be left out."""
        parts = [part for part in canonical(self.path_info).split('/') if part]
        return parts if not parts or OTHER_VERSION.fullmatch(parts[0]) else [
            'v2', *parts[parts[0] == 'v2':]]

    def needs(self, version: tuple[int, int], what: str) -> None:
        """Refuse what an older version of the API does not have."""
        if self.version < version:
            raise errors.NotAcceptable(
                f'{what} needs version {version[0]}.{version[1]} of this API or later; this '
                f'request asks for {self.version}.')

    def needs_service(self, action: str) -> None:
        """Refuse what only services may do, whoever they do it for."""
        if not self.context.is_service:
            raise errors.ServiceTokenRequired(action=action)

    def link(self, *parts: str, rel: str = 'self') -> dict[str, str]:
        """A link to something of ours, from wherever we are mounted."""
        return {'rel': rel, 'href': '/'.join((self.root_url, *parts))}


class Hook(pecan.hooks.PecanHook):
    """Finds out who asks and for which version; turns every error into an answer."""

    def __init__(self, conf: cfg.ConfigOpts, enforcer: policy.Enforcer) -> None:
        self._enforcer = enforcer
        self._root_url = (conf.api.public_endpoint or '').rstrip('/')
        self._service_roles = set(conf.keystone_authtoken.service_token_roles)

    def on_route(self, state: Any) -> None:
        request = state.request
        # We speak JSON only; pecan would otherwise choose by suffix and Accept.
        request.pecan['content_type'] = 'application/json'
        request.root_url = self._root_url or request.application_url.rstrip('/')
        request.context = self._context(request)
        request.is_versioned = request.segments[:1] == ['v2']
        if request.is_versioned:
            request.version = microversions.requested(
                request.headers.get(microversions.HEADER))

    def _context(self, request: Request) -> RequestContext:
        context = RequestContext.from_environ(request.environ)
        context.is_admin = policy.is_admin(self._enforcer, context)
        context.is_service = not self._service_roles.isdisjoint(context.service_roles)
        context.is_service_user = not self._service_roles.isdisjoint(context.roles)
        return context

    def after(self, state: Any) -> None:
        if state.request.is_versioned:
            state.response.headers.update(microversions.headers(state.request.version))

    def on_error(self, state: Any, error: Exception) -> Any:
        return faults.answer(error)
