# SPDX-License-Identifier: Apache-2.0
"""HTTP without a socket: a WSGI application of this process, reached like any other service."""

import io
from collections.abc import Mapping
from concurrent import futures
from typing import Any
from wsgiref.types import WSGIApplication

import requests
import webob
from requests import adapters, structures, utils


class Transport(adapters.BaseAdapter):
    """Hands each request to the application, in a thread of its own as a server would.

    What the application keeps by thread, its request context above all, is then not mixed with
    the caller's. Nothing is kept between requests, so threads may share a transport. There is
    no wire: time-outs, certificates and proxies mean nothing here.
    """

    def __init__(self, application: WSGIApplication) -> None:
        super().__init__()
        self._application = application

    def send(self, request: requests.PreparedRequest, stream: bool = False,
             timeout: Any = None, verify: bool | str = True, cert: Any = None,
             proxies: Mapping[str, str] | None = None) -> requests.Response:
        asked = webob.Request.blank(request.url, method=request.method)
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
    """Serve this session's requests below a URL from an application; no other session's."""
    session.mount(prefix, Transport(application))
