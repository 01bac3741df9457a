# SPDX-License-Identifier: Apache-2.0
"""Converts errors of other layers to our own format."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import webob
import webob.dec

from cyborg import errors
from cyborg.api import faults

SENTENCES = {
    HTTPStatus.UNAUTHORIZED: 'A valid token is needed.',
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 'The body of the request is too large.',
    HTTPStatus.SERVICE_UNAVAILABLE: errors.Unavailable.template,
}


class FaultsMiddleware:
    """Rewrites the errors of libraries, and catches exceptions that no other layer catches."""

    def __init__(self, app: Any) -> None:
        self._app = app

    @webob.dec.wsgify  # type: ignore[untyped-decorator]
    def __call__(self, request: webob.Request) -> webob.Response:
        try:
            response = request.get_response(self._app)
        except Exception as error:
            return faults.answer(error, request.environ)
        code = response.status_int
        if code >= HTTPStatus.BAD_REQUEST and not faults.is_ours(response):
            sentence = SENTENCES.get(code, f'{response.status}.')
            request.environ[faults.FAULT] = sentence
            response.body = faults.body(code, sentence)
            response.content_type, response.charset = 'application/json', None
        return response

    @classmethod
    def factory(cls, global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Any]:
        """Returns the filter; paste calls this."""
        return cls
