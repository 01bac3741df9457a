# SPDX-License-Identifier: Apache-2.0
"""The request of a client, with the attributes that hooks set before a controller is called."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import webob
import webob.multidict

from cyborg import errors
from cyborg.api import microversions
from cyborg.context import RequestContext

#: the form of a version as the first part of a path; v2 may be left out
OTHER_VERSION = re.compile(r'v(?!2$)\d+(\.\d+)?')
#: a request that creates something and has the key of an earlier one is a repeated request
IDEMPOTENCY_KEY = 'Idempotency-Key'
KEY_PATTERN = '[ -~]{1,255}'


def canonical(path: str) -> str:
    """Returns the path without doubled or trailing slashes and ``.json``, which are ignored."""
    return '/' + '/'.join(filter(None, path.removesuffix('.json').split('/')))


class Request(webob.Request):
    """A request, with attributes that hooks set."""

    # Pecan would read arguments from here. Ours are declared, and a hook reads them.
    params = webob.multidict.MultiDict()
    json = None
    # Another layer limits the size of bodies. WebOb would write large ones to temporary files,
    # which only the garbage collector closes.
    request_body_tempfile_limit = 2**31

    context: RequestContext
    # The attributes have defaults, because WebOb is slow with attributes that its class lacks.
    #: everything but the root document and other versions' paths is version 2
    is_versioned = False
    version: microversions.Version | None = None
    #: where the API is mounted, without a trailing slash
    root_url = ''
    #: whether policy allows a rule to the caller
    allows: Callable[[str], bool] = staticmethod(lambda rule: False)
    #: the query and the body, checked, if the operation takes them
    arguments: Mapping[str, Any] = MappingProxyType({})

    @property
    def segments(self) -> list[str]:
        """The parts of the path, from the version on, which may be left out."""
        parts = [part for part in canonical(self.path_info).split('/') if part]
        return (
            parts
            if not parts or OTHER_VERSION.fullmatch(parts[0])
            else ['v2', *parts[parts[0] == 'v2' :]]
        )

    @property
    def negotiated(self) -> microversions.Version:
        """The version that the request asks for; the lowest version on paths without versions."""
        return self.version or microversions.LOWEST

    def needs(self, version: tuple[int, int], what: str) -> None:
        """Raises NotAcceptable if the requested version is older."""
        if self.negotiated < version:
            raise errors.NotAcceptable(
                f'{what} needs version {version[0]}.{version[1]} of this API or later; this '
                f'request asks for {self.version}.'
            )

    def needs_service(self, action: str) -> None:
        """Raises ServiceTokenRequired unless a service makes the call, on behalf of any user."""
        if not self.context.is_service:
            raise errors.ServiceTokenRequired(action=action)

    def link(self, *parts: str, rel: str = 'self') -> dict[str, str]:
        """Returns a link to a resource, below the URL under which the API is mounted."""
        return {'rel': rel, 'href': '/'.join((self.root_url, *parts))}
