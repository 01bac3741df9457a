# SPDX-License-Identifier: Apache-2.0
"""Operations are declared, here is what interprets them: routing, checks, the answer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

import pecan
import webob
import webob.exc
from oslo_config import cfg

from cyborg import policy
from cyborg.api import microversions, requests, waiting
from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas.shapes import Schema

Route = tuple[Callable[..., webob.Response], list[str]]

UNFINISHED = HTTPStatus.ACCEPTED
NO_QUERY: Schema = {'type': 'object', 'properties': {}}


@dataclass(frozen=True)
class Operation:
    """A method on a path below its noun, and what must hold before it is called."""

    method: str
    path: str
    #: the policy that must allow it; None: anybody may
    rule: str | None = None
    #: None: no parameter is known
    query: Schema | None = None
    #: None: a body is not looked at
    body: Schema | None = None
    #: None: the answer has no body
    shown: Schema | None = None
    status: HTTPStatus = HTTPStatus.OK
    #: the answer can be Unfinished
    can_last: bool = False
    #: how it can fail besides the ways in which every operation of its kind can
    fails: tuple[HTTPStatus, ...] = ()
    #: the version that brought it
    since: tuple[int, int] = microversions.LOWEST

    def match(self, segments: Sequence[str]) -> list[str] | None:
        """What stands for the placeholders of the path, or None if this is another path."""
        parts = self.path.split('/') if self.path else []
        if len(parts) != len(segments):
            return None
        pairs = list(zip(parts, segments, strict=True))
        if any(part != segment for part, segment in pairs if not part.startswith('{')):
            return None
        return [segment for part, segment in pairs if part.startswith('{')]


@dataclass(frozen=True)
class Unfinished:
    """What an operation shows when it could not wait for its end."""

    shown: Any


class Resource:
    """A noun of the API: methods decorated with ``expose`` are its operations."""

    operations: ClassVar[dict[str, Operation]]

    def __init__(self, conf: cfg.ConfigOpts, conductor: Any, enforcer: policy.Enforcer,
                 waiter: waiting.Waiter) -> None:
        self.conf, self.conductor, self.enforcer = conf, conductor, enforcer
        self.waiter = waiter

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.operations = {name: member.operation for name, member in vars(cls).items()
                          if hasattr(member, 'operation')}

    def route(self, segments: Sequence[str], request: webob.Request) -> Route:
        """Find the operation; 404 for an unknown path, 405 for a known one."""
        method = 'GET' if request.method == 'HEAD' else request.method
        offered, hint = set(), ''
        for name, operation in self.operations.items():
            values = operation.match(segments)
            if values is None:
                continue
            if request.version is not None and request.version < operation.since:
                hint = ' Version {}.{} of this API has it.'.format(*operation.since)
            elif operation.method == method:
                return getattr(self, name), values
            else:
                offered.add(operation.method)
        if offered:
            raise webob.exc.HTTPMethodNotAllowed(
                f'{method} is not offered here; these are: {", ".join(sorted(offered))}.{hint}',
                allow=sorted(offered))
        raise webob.exc.HTTPNotFound(f'There is nothing at this path.{hint}')


def expose(method: str, path: str = '', **declared: Any) -> Callable[..., Any]:
    """Declare an operation: allowed? well-formed? then the method's answer, as JSON."""
    operation = Operation(method, path, **declared)
    schemas = {version: (shapes.at(operation.query or NO_QUERY, version),
                         shapes.at(operation.body, version, is_body=True))
               for version in microversions.HISTORY}

    def decorate(function: Callable[..., Any]) -> Callable[..., webob.Response]:
        def handle(self: Resource, request: requests.Request, response: webob.Response,
                   *segments: str) -> webob.Response:
            if operation.rule:
                policy.authorize(self.enforcer, request.context, operation.rule)
            query, body = schemas[request.version or microversions.LOWEST]
            request.query = checks.query(request.GET, query)
            if body is not None:
                request.document = checks.document(request, body)
            shown = function(self, request, *segments)
            if isinstance(shown, Unfinished):
                return answer(UNFINISHED, shown.shown)
            return answer(operation.status, shown)

        handle.__name__, handle.__doc__ = function.__name__, function.__doc__
        handle.operation = operation  # type: ignore[attr-defined]
        return pecan.expose(content_type='application/json')(handle)
    return decorate


def answer(status: HTTPStatus, shown: Any) -> webob.Response:
    """JSON, or nothing at all where there is nothing to show."""
    if shown is None:
        response = webob.Response(status=status)
        response.content_type = None
        return response
    return webob.Response(status=status, content_type='application/json',
                          body=json.dumps(shown).encode())
