# SPDX-License-Identifier: Apache-2.0
"""Requests that a proxy passes on: the address and the URL that its client has used."""

from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from oslo_middleware import http_proxy_to_wsgi


class HTTPProxyToWSGI(http_proxy_to_wsgi.HTTPProxyToWSGI):
    """The middleware of oslo.middleware, for requests with headers of a proxy. It would make
    objects of all other requests and answers, too."""

    application: Any

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        if any(key.startswith(('HTTP_FORWARDED', 'HTTP_X_FORWARDED_')) for key in environ):
            return super().__call__(environ, start_response)
        return self.application(environ, start_response)
