# SPDX-License-Identifier: Apache-2.0
"""Decorators that declare the input, the output and the requirements of a controller's method."""

import functools
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, NamedTuple

import pecan
import webob

from cyborg.api import microversions
from cyborg.api.request import Request
from cyborg.api.types import json_schema
from cyborg.api.types.documents import Schema, schema_of

UNFINISHED = HTTPStatus.ACCEPTED
NO_QUERY: Schema = {'type': 'object', 'properties': {}}

#: the names of methods: those of pecan's RestController, and those for all items at once
REST_METHODS = {
    'get': 'GET',
    'get_all': 'GET',
    'get_one': 'GET',
    'post': 'POST',
    'patch': 'PATCH',
    'patch_all': 'PATCH',
    'delete': 'DELETE',
    'delete_all': 'DELETE',
}


class Schemas(NamedTuple):
    """The schemas that validate a request."""

    query: Schema
    body: Schema | None


@dataclass(frozen=True)
class Operation:
    """An HTTP method on a path below its noun, and the conditions for calling it."""

    method: str
    path: str
    #: the policy that must allow it; None: anybody may
    rule: str | None
    #: the first version that has it
    since: tuple[int, int]
    #: the type of the answer; None: it has no body
    shown: Any = None
    #: the type of the query; None: it takes no parameter
    query: Any = None
    #: the type of the body; None: a body is ignored
    body: Any = None
    status: HTTPStatus = HTTPStatus.OK
    #: the answer can be Unfinished
    can_last: bool = False
    #: how it can fail besides the ways in which every operation of its kind can
    fails: tuple[HTTPStatus, ...] = ()

    @functools.cached_property
    def schemas(self) -> dict[microversions.Version, Schemas]:
        query = NO_QUERY if self.query is None else schema_of(self.query)
        body = None if self.body is None else schema_of(self.body)
        return {
            version: Schemas(
                json_schema.at(query, version), json_schema.at(body, version, is_body=True)
            )
            for version in microversions.HISTORY
        }

    @property
    def placeholders(self) -> list[str]:
        """The names of the placeholders of the path."""
        return [part.strip('{}') for part in self.path.split('/') if part.startswith('{')]

    def match(self, segments: Sequence[str]) -> list[str] | None:
        """Returns the values of the placeholders, or None if the path does not match."""
        parts = self.path.split('/') if self.path else []
        if len(parts) != len(segments):
            return None
        pairs = list(zip(parts, segments, strict=True))
        if any(part != segment for part, segment in pairs if not part.startswith('{')):
            return None
        return [segment for part, segment in pairs if part.startswith('{')]


@dataclass(frozen=True)
class Unfinished:
    """The answer of an operation that is still in progress."""

    shown: Any


def policy(rule: str) -> Callable[..., Any]:
    """Declare the policy that must allow a method. Below ``expose``, like ``since``, ``action``."""
    return _noting(rule=rule)


def since(major: int, minor: int) -> Callable[..., Any]:
    """Declare the first version of the API that has a method."""
    return _noting(since=(major, minor))


def action(method: str, path: str) -> Callable[..., Any]:
    """Declare the HTTP method and the path of a function whose name is not in REST_METHODS."""
    return _noting(action=(method, path))


def _noting(**facts: Any) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        vars(function).update(facts)
        return function

    return decorate


def expose(shown: Any = None, **declared: Any) -> Callable[..., Any]:
    """Declare an operation: the type that it shows, and other fields of Operation.

    A method takes the request, the values of the placeholders in the path, then ``query`` and
    ``body`` if they are declared. Its result is sent as JSON.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., webob.Response]:
        operation = Operation(
            *_place(function),
            rule=getattr(function, 'rule', None),
            since=getattr(function, 'since', microversions.LOWEST),
            shown=shown,
            **declared,
        )

        def handle(
            self: Any, request: Request, response: webob.Response, *segments: str
        ) -> webob.Response:
            result = function(self, request, *segments, **request.arguments)
            if isinstance(result, Unfinished):
                return answer(UNFINISHED, result.shown)
            return answer(operation.status, result)

        handle.__name__, handle.__doc__ = function.__name__, function.__doc__
        handle.operation = operation  # type: ignore[attr-defined]
        exposed: Callable[..., webob.Response] = pecan.expose(content_type='application/json')(
            handle
        )
        return exposed

    return decorate


def _place(function: Callable[..., Any]) -> tuple[str, str]:
    """Returns the HTTP method and the path of a function, by its name or its action."""
    if hasattr(function, 'action'):
        method, path = function.action
        return method, path
    _, _, *parameters = inspect.signature(function).parameters
    path = '/'.join(f'{{{name}}}' for name in parameters if name not in ('query', 'body'))
    return REST_METHODS[function.__name__], path


def answer(status: HTTPStatus, shown: Any) -> webob.Response:
    """Returns an answer with a JSON body, or without a body if there is nothing to show."""
    if shown is None:
        response = webob.Response(status=status)
        response.content_type = None
        return response
    return webob.Response(
        status=status, content_type='application/json', body=json.dumps(shown).encode()
    )
