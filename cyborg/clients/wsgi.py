# SPDX-License-Identifier: Apache-2.0
"""HTTP without a socket: calls a WSGI application in this process like any other service."""

import io
from collections.abc import Mapping
from concurrent import futures
from typing import Any
from urllib import parse
from wsgiref.types import WSGIApplication

import requests
import webob
from requests import adapters, structures, utils


class Transport(adapters.BaseAdapter):
    """Passes each request to the application in a new thread, as a server does.

    So thread-local data of the application, such as its request context, is not mixed with that
    of the caller. Nothing is kept between requests, so threads may share a transport. Time-outs,
    certificates and proxies have no effect.
    """

    def __init__(self, application: WSGIApplication, path: str = '') -> None:
        """``path`` is the part of a URL below which the application is."""
        super().__init__()
        self._application = application
        self._path = path.rstrip('/')

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        asked = webob.Request.blank(request.url, method=request.method)
        asked.script_name, asked.path_info = self._path, asked.path_info.removeprefix(self._path)
        asked.headers.update(request.headers)
        body = request.body or b''
        asked.body = body.encode() if isinstance(body, str) else body
        with futures.ThreadPoolExecutor(1) as thread:
            answered = thread.submit(asked.get_response, self._application).result()
        response = requests.Response()
        response.request, response.url = request, request.url or ''
        response.status_code = answered.status_int
        response.reason = answered.status.partition(' ')[2]
        response.headers = structures.CaseInsensitiveDict(answered.headerlist)
        response.encoding = utils.get_encoding_from_headers(response.headers)
        response.raw = io.BytesIO(answered.body)
        return response

    def close(self) -> None:
        """There is no connection to close."""


def mount(session: requests.Session, prefix: str, application: WSGIApplication) -> None:
    """Have an application serve the requests of this session below a URL."""
    session.mount(prefix, Transport(application, parse.urlsplit(prefix).path))
