# SPDX-License-Identifier: Apache-2.0
"""Cross-origin requests (CORS): which web sites may call the API from a browser."""

from collections.abc import Callable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from oslo_middleware import cors


class CorsMiddleware(cors.CORS):
    """The middleware of oslo.middleware, with [cors] of this process's configuration.

    By default it would read configuration files again, from the default directories only. It would
    also make objects of each request and answer, though most are not from a browser.
    """

    application: Any

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        if 'HTTP_ORIGIN' in environ or environ['REQUEST_METHOD'] == 'OPTIONS':
            return super().__call__(environ, start_response)
        return self.application(environ, start_response)

    @classmethod
    def factory(cls, global_conf: dict[str, Any] | None, **local_conf: Any) -> Callable[[Any], Any]:
        """Returns the filter; paste calls this."""
        return lambda app: cls(app, {**(global_conf or {}), **local_conf})
