# SPDX-License-Identifier: Apache-2.0
"""Hooks that pecan runs around every call of a controller, in the order of the classes."""

import functools
import re
from typing import Any

import pecan.hooks
import webob
from oslo_config import cfg
from oslo_utils import uuidutils

from cyborg import errors, policy
from cyborg.api import faults, microversions
from cyborg.api.request import IDEMPOTENCY_KEY, KEY_PATTERN, Request
from cyborg.api.types import documents, validation
from cyborg.context import RequestContext

#: the key of the request's context in its environment, for the filters around the application
CONTEXT = 'cyborg.context'


class FaultHook(pecan.hooks.PecanHook):
    """Turns an exception into the answer to a request."""

    priority = 10

    def on_error(self, state: Any, error: Exception) -> webob.Response:
        return faults.answer(error, state.request.environ)


class ContextHook(pecan.hooks.PecanHook):
    """Sets the caller, and the URL under which the API is mounted."""

    priority = 20

    def __init__(self, conf: cfg.ConfigOpts, enforcer: policy.Enforcer) -> None:
        self._enforcer = enforcer
        self._root_url = (conf.api.public_endpoint or '').rstrip('/')
        self._service_roles = set(conf.keystone_authtoken.service_token_roles)

    def on_route(self, state: Any) -> None:
        request = state.request
        # Only JSON is supported; pecan would otherwise choose by suffix and Accept.
        request.pecan['content_type'] = 'application/json'
        request.root_url = self._root_url or request.application_url.rstrip('/')
        request.context = request.environ[CONTEXT] = self._context(request)
        request.allows = functools.partial(self._enforcer.allows, request.context)

    def _context(self, request: Request) -> RequestContext:
        context = RequestContext.from_environ(request.environ)
        context.is_admin = policy.is_admin(self._enforcer, context)
        context.is_service = not self._service_roles.isdisjoint(context.service_roles)
        context.is_service_user = not self._service_roles.isdisjoint(context.roles)
        if request.method == 'POST':
            context.idempotency_key = _idempotency_key(request)
        return context


def _idempotency_key(request: Request) -> str:
    """Returns the key of the client, or a new one, with which a call without an answer is repeated.

    The two kinds differ, so that no client can send a key that the API has made.
    """
    given = request.headers.get(IDEMPOTENCY_KEY)
    if given is None:
        return f'own {uuidutils.generate_uuid()}'
    if not re.fullmatch(KEY_PATTERN, given):
        raise errors.BadRequest(f'{IDEMPOTENCY_KEY} must have 1 to 255 printable ASCII characters.')
    return f'given {given}'


class VersionHook(pecan.hooks.PecanHook):
    """Sets the requested version, and adds the version headers to every answer."""

    priority = 30

    def on_route(self, state: Any) -> None:
        request = state.request
        request.is_versioned = request.segments[:1] == ['v2']
        if request.is_versioned:
            request.version = microversions.requested(request.headers.get(microversions.HEADER))

    def after(self, state: Any) -> None:
        if state.request.is_versioned:
            state.response.headers.update(microversions.headers(state.request.version))


class PolicyHook(pecan.hooks.PecanHook):
    """Refuses a call that the policy does not allow."""

    priority = 40

    def __init__(self, enforcer: policy.Enforcer) -> None:
        self._enforcer = enforcer

    def before(self, state: Any) -> None:
        operation = state.controller.operation
        if operation.rule:
            policy.authorize(self._enforcer, state.request.context, operation.rule)


class ValidationHook(pecan.hooks.PecanHook):
    """Checks the query and the body, and reads them as the types that are declared."""

    priority = 50

    def before(self, state: Any) -> None:
        request, operation = state.request, state.controller.operation
        schemas = operation.schemas[request.negotiated]
        query = validation.query(request.GET, schemas.query)
        arguments = {}
        if operation.query is not None:
            arguments['query'] = documents.read(operation.query, query)
        if operation.body is not None:
            body = validation.document(request, schemas.body)
            arguments['body'] = documents.read(operation.body, body)
        request.arguments = arguments
