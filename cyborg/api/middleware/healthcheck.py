# SPDX-License-Identifier: Apache-2.0
"""Answers load balancers at one path, before any token is asked for.

oslo.middleware offers its health check as an application only; this puts it into a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import oslo_middleware

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class HealthcheckMiddleware:
    """Hands requests for `path` to oslo.middleware's health check, all others on."""

    def __init__(self, application: WSGIApplication, check: WSGIApplication, path: str) -> None:
        self.application = application
        self.check = check
        self.path = path

    @classmethod
    def factory(
        cls, global_conf: dict[str, Any], path: str = '/healthcheck', **local_conf: Any
    ) -> Callable[[WSGIApplication], HealthcheckMiddleware]:
        """Build the filter for paste.deploy; other keys are options of `[healthcheck]`, and what
        backends need (``api/health.py``)."""
        check = oslo_middleware.Healthcheck.app_factory(global_conf, **local_conf)
        return lambda application: cls(application, check, path)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        is_check = environ.get('PATH_INFO') == self.path
        return (self.check if is_check else self.application)(environ, start_response)
