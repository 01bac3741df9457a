# SPDX-License-Identifier: Apache-2.0
"""Errors of other layers, in the shape that ours have."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import webob
import webob.dec

from cyborg.api import faults

SENTENCES = {
    HTTPStatus.UNAUTHORIZED: 'A valid token is needed.',
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 'The body of the request is too large.',
    HTTPStatus.SERVICE_UNAVAILABLE: 'A service that this needs is away; try again later.',
}


class FaultsMiddleware:
    """Rewrites what a library says when it refuses a request, and catches what it drops."""

    def __init__(self, app: Any) -> None:
        self._app = app

    @webob.dec.wsgify
    def __call__(self, request: webob.Request) -> webob.Response:
        try:
            response = request.get_response(self._app)
        except Exception as error:
            return faults.answer(error)
        code = response.status_int
        if code >= HTTPStatus.BAD_REQUEST and not faults.is_ours(response):
            response.body = faults.body(code, SENTENCES.get(code, f'{response.status}.'))
            response.content_type, response.charset = 'application/json', None
        return response

    @classmethod
    def factory(cls, global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Any]:
        """What paste calls."""
        return cls
