# SPDX-License-Identifier: Apache-2.0
"""A fake Glance: shows, lists and sends images over real HTTP."""

import contextlib
import hashlib
import threading
import time
import urllib.parse
import uuid
from typing import Any

from cyborg.sim import http_server

HALF = 2
#: the most images in a page; the real Glance allows more if the client requests them
PAGE = 25
#: the part that python-glanceclient reads
SCHEMAS = {
    'image': {
        'name': 'image',
        'additionalProperties': {'type': 'string'},
        'properties': {
            name: {'type': ['null', 'string']}
            for name in ('id', 'name', 'status', 'visibility', 'owner')
        },
    },
    'member': {
        'name': 'member',
        'properties': {
            'member_id': {'type': 'string'},
            'image_id': {'type': 'string'},
            'status': {'type': 'string', 'enum': ['pending', 'accepted', 'rejected']},
        },
    },
}
#: parameters of a list that are not properties of an image
NO_FILTERS = frozenset({'limit', 'marker', 'member_status', 'visibility'})


class Handler(http_server.JsonHandler):
    """Handles one request to the fake Glance."""

    glance: 'Glance'

    def do_GET(self) -> None:
        path, _, query = self.path.partition('?')
        _, version, collection, name, part = (*path.split('/'), '', '', '')[:5]
        if collection == 'images':
            self.glance.requests.append((self.path, self.headers.get('X-OpenStack-Request-ID')))
        if self.glance.refuses:
            self._refuse(self.glance.refuses, 'The test requested this error.')
        elif collection == 'schemas' and name in SCHEMAS:
            self.send_json(200, SCHEMAS[name])
        elif collection == 'images' and not name:
            self._list(dict(urllib.parse.parse_qsl(query)))
        elif version != 'v2' or name not in self.glance.images:
            self._refuse(404, f'No image found with ID {name}')
        elif part == 'file':
            self._send(self.glance.data[name])
        elif part == 'members':
            self.send_json(
                200,
                {
                    'members': [
                        {'member_id': each, 'image_id': name, 'status': status}
                        for each, status in self.glance.members.get(name, {}).items()
                    ]
                },
            )
        else:
            self.send_json(200, self.glance.images[name])

    def _refuse(self, status: int, why: str) -> None:
        """Respond with an error in HTML, as the real Glance does."""
        text = f'<html><body><h1>{status}</h1>\n{why}</body></html>'.encode()
        self.send_head(status, 'text/html; charset=UTF-8', len(text))
        self.wfile.write(text)

    def _list(self, parameters: dict[str, str]) -> None:
        limit = min(int(parameters.get('limit', PAGE)), PAGE)
        rest = [
            image
            for image in self.glance.found(parameters)
            if image['id'] > parameters.get('marker', '')
        ]
        page: dict[str, Any] = {'images': rest[:limit]}
        if len(rest) > limit:
            page['next'] = '/v2/images?' + urllib.parse.urlencode(
                parameters | {'marker': rest[limit - 1]['id']}
            )
        self.send_json(200, page)

    def _send(self, data: bytes) -> None:
        if not data:
            self.send_response(204)
            self.end_headers()
            return
        self.send_head(200, self.glance.content_type, len(data))
        with contextlib.suppress(ConnectionError):  # the client stopped reading
            self._write(data[: len(data) // HALF])
            self.glance.goes_on.wait()
            if self.glance.breaks_off:
                self.close_connection = True
            else:
                self._write(data[len(data) // HALF :])

    def _write(self, data: bytes) -> None:
        size = 1 if self.glance.byte_pause else len(data)
        for start in range(0, len(data), size or 1):
            self.wfile.write(data[start : start + size])
            time.sleep(self.glance.byte_pause)


class Glance(http_server.HttpServer):
    """Holds images in memory. Tests may change their fields afterwards."""

    handler = Handler  #: of requests

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.data: dict[str, bytes] = {}
        #: the projects with which an image is shared, and their status, by its uuid
        self.members: dict[str, dict[str, str]] = {}
        #: the path and the request id of each request for images
        self.requests: list[tuple[str, str | None]] = []
        #: the status of every response; None: no error
        self.refuses: int | None = None
        #: closes the connection after the first half of an image's data
        self.breaks_off = False
        #: seconds after each byte of an image's data; 0: it is sent at once
        self.byte_pause = 0.0
        #: the content type of an image's data
        self.content_type = 'application/octet-stream'
        #: while this is not set, sending data pauses after the first half
        self.goes_on = threading.Event()
        self.goes_on.set()
        super().__init__(type('GlanceHandler', (self.handler,), {'glance': self}))

    def add(self, data: bytes, **facts: Any) -> str:
        """Add an image and return its uuid."""
        name = str(uuid.uuid4())
        self.data[name] = data
        self.images[name] = {
            'id': name,
            'status': 'active',
            'visibility': 'private',
            'owner': 'admin',
            'size': len(data),
            'os_hash_algo': 'sha512',
            'os_hash_value': hashlib.sha512(data).hexdigest(),
        } | facts
        return name

    def found(self, parameters: dict[str, str]) -> list[dict[str, Any]]:
        """Return the images that an administrator finds, in the order of their ids."""
        visibility = parameters.get('visibility')
        return [
            image
            for _, image in sorted(self.images.items())
            if all(
                image.get(name) == value
                for name, value in parameters.items()
                if name not in NO_FILTERS
            )
            and (
                visibility == 'all'
                or image['visibility'] == visibility
                or visibility is None
                and image['visibility'] != 'community'
            )
        ]
