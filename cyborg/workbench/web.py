# SPDX-License-Identifier: Apache-2.0
"""The port of the standalone: the web page, the control interface, the API, and Placement."""

import ipaddress
import json
from collections.abc import Iterable
from importlib import resources
from typing import Any
from urllib import parse
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import webob

from cyborg import errors
from cyborg.api.middleware import access_log
from cyborg.workbench.control import Control

PAGE = 'page.html'
#: marks the requests that the page repeats
POLL = 'X-Workbench-Poll'
#: what the page may load: nothing but itself, and data of this port
PAGE_HEADERS = {
    'Content-Security-Policy': "default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-store',
    'Vary': 'Accept',
}
LARGEST_BODY = 65536


class Site:
    """A WSGI application. Before ``open`` it answers that the standalone is starting."""

    def __init__(self) -> None:
        self._page = resources.files(__package__).joinpath(PAGE).read_bytes()
        self._api: WSGIApplication | None = None
        self._control: Control | None = None
        self._mounted: dict[str, WSGIApplication] = {}

    def open(
        self, api: WSGIApplication, control: Control, mounted: dict[str, WSGIApplication]
    ) -> None:
        """Serve the API and the control interface, and other applications below their paths."""
        self._mounted, self._control, self._api = mounted, control, api

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = webob.Request(environ)
        try:
            refuse_other_sites(request)
            application = self._chosen(request)
        except errors.CyborgError as error:
            application = webob.Response(json={'error': error.faultstring}, status=int(error.code))
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    def _chosen(self, request: webob.Request) -> Any:
        """Return the application that answers a request; a response is one."""
        if self._api is None or self._control is None:
            raise errors.Unavailable('The standalone is starting.')
        first = request.path_info.split('/')[1] if '/' in request.path_info else ''
        if first == 'control':
            return self._controlled(request, self._control)
        if first in self._mounted:
            request.path_info_pop()
            return self._mounted[first]
        if request.path_info in ('', '/') and wants_page(request):
            return _as_page(self._page)
        if POLL in request.headers:
            request.environ[access_log.REPEATED] = True
        return self._api

    def _controlled(self, request: webob.Request, control: Control) -> webob.Response:
        words = request.path_info.strip('/').split('/')
        match request.method, words:
            case 'GET', ['control']:
                return webob.Response(json=control.show())
            case 'POST', ['control', operation]:
                return webob.Response(json=control.perform(operation, _arguments(request)))
        raise errors.NotFound(
            f'There is no {request.method} {request.path_info}: GET /control shows the hosts, '
            'POST /control/<operation> changes them.'
        )


def _as_page(body: bytes) -> webob.Response:
    response = webob.Response(body=body, content_type='text/html', charset='utf-8')
    response.headers.update(PAGE_HEADERS)
    return response


def wants_page(request: webob.Request) -> bool:
    """Whether a request for ``/`` is that of a browser: it names text/html. Other clients do not,
    and get the version document, also those that accept anything."""
    return request.method in ('GET', 'HEAD') and 'text/html' in request.headers.get('Accept', '')


def refuse_other_sites(request: webob.Request) -> None:
    """Raise Forbidden for what a page of another web site has sent. There is no login, so a
    browser would do for any page what it does for ours.

    The host name must be one of this machine, so that no other name can lead here (DNS rebinding).
    Browsers add the origin of the page to whatever may change something.
    """
    host = request.headers.get('Host', '')
    if not _is_local(host):
        raise errors.Forbidden('Use http://127.0.0.1 or http://localhost: there is no login here.')
    origin = request.headers.get('Origin')
    if origin is not None and origin != f'http://{host}':
        raise errors.Forbidden('Pages of other web sites may not use this: there is no login.')


def _is_local(host: str) -> bool:
    try:
        name = parse.urlsplit(f'//{host}').hostname or ''
        return name == 'localhost' or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _arguments(request: webob.Request) -> Any:
    """Return the JSON of a request. Pages of other sites cannot send this content type."""
    if request.content_type != 'application/json':
        raise errors.UnsupportedMediaType(kind=request.content_type or 'nothing')
    if (request.content_length or 0) > LARGEST_BODY:
        raise errors.BadRequest(f'The body is longer than {LARGEST_BODY} bytes.')
    try:
        return json.loads(request.body or b'{}')
    except ValueError as error:
        raise errors.BadRequest(f'The body is not JSON: {error}.') from error
