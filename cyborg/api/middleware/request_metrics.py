# SPDX-License-Identifier: Apache-2.0
"""Counts and times requests for the metrics, whatever the paste file has."""

import time
from collections.abc import Collection, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from cyborg import metrics

#: paths that are no collections: their names in metrics
OTHER_PATHS = {'': 'root', 'v2': 'root', 'healthcheck': 'healthcheck'}


class RequestMetrics:
    """Observes each request by method, collection and status."""

    def __init__(self, application: WSGIApplication, collections: Collection[str]) -> None:
        self._application = application
        self._collections = collections

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method = metrics.known_method(environ.get('REQUEST_METHOD', ''))
        collection = self._collection(environ.get('PATH_INFO', ''))
        status = '500'

        def note(answer: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            nonlocal status
            status = answer.partition(' ')[0]
            return start_response(answer, headers, *rest)

        began = time.perf_counter()
        try:
            return self._application(environ, note)
        finally:
            metrics.API_REQUESTS.labels(method, collection, status).observe(
                time.perf_counter() - began
            )

    def _collection(self, path: str) -> str:
        """Returns what a path is about, in few words: clients may send any path."""
        first, _, rest = path.strip('/').partition('/')
        name = rest.partition('/')[0].removesuffix('.json') if first == 'v2' and rest else ''
        if name in self._collections:
            return name
        return 'other' if rest else OTHER_PATHS.get(first, 'other')


class ServedFromFirstRequest:
    """Starts to serve metrics when the first request arrives.

    A WSGI server may load the application and fork its processes afterwards, and no thread
    survives a fork.
    """

    def __init__(self, application: WSGIApplication, listener: metrics.Listener) -> None:
        self._application = application
        self._listener = listener

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self._listener.start()
        return self._application(environ, start_response)
