# SPDX-License-Identifier: Apache-2.0
"""Converts errors of other layers to our own format."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import webob

from cyborg import errors
from cyborg.api import faults

SENTENCES: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: 'A valid token is needed.',
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 'The body of the request is too large.',
    HTTPStatus.SERVICE_UNAVAILABLE: errors.Unavailable.template,
}


class FaultsMiddleware:
    """Rewrites the errors of libraries, and catches exceptions that no other layer catches."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        try:
            status, headers, chunks = webob.Request(environ).call_application(self._app)
        except Exception as error:
            return faults.answer(error, environ)(environ, start_response)
        code = int(status.partition(' ')[0])
        if code < HTTPStatus.BAD_REQUEST:
            start_response(status, headers)
            return chunks
        response = webob.Response(status=status, headerlist=headers, app_iter=chunks)
        if not faults.is_ours(response):
            sentence = SENTENCES.get(code, f'{status}.')
            environ[faults.FAULT] = sentence
            response.body = faults.body(code, sentence)
            response.content_type, response.charset = 'application/json', None
        return response(environ, start_response)

    @classmethod
    def factory(cls, global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Any]:
        """Returns the filter; paste calls this."""
        return cls
