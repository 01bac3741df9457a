# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Glance: shows, finds and hands out images over real HTTP."""

import contextlib
import hashlib
import threading
import urllib.parse
import uuid
from typing import Any

from cyborg.sim import neighbour

HALF = 2
#: how many images a list has at most; the real one takes 25 unless asked for more
PAGE = 25
#: as far as python-glanceclient looks at them
SCHEMAS = {
    'image': {'name': 'image', 'additionalProperties': {'type': 'string'}, 'properties': {
        name: {'type': ['null', 'string']}
        for name in ('id', 'name', 'status', 'visibility', 'owner')}},
    'member': {'name': 'member', 'properties': {
        'member_id': {'type': 'string'}, 'image_id': {'type': 'string'},
        'status': {'type': 'string', 'enum': ['pending', 'accepted', 'rejected']}}},
}
#: parameters of a list that are no properties of an image
NO_FILTERS = frozenset({'limit', 'marker', 'member_status', 'visibility'})


class Glance(neighbour.Neighbour):
    """Holds what it is given. What it says of an image can be changed afterwards."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.data: dict[str, bytes] = {}
        #: the projects with which an image is shared, and their status, by its uuid
        self.members: dict[str, dict[str, str]] = {}
        #: the paths of images, with the request id that came along
        self.requests: list[tuple[str, str | None]] = []
        #: a status with which every request is refused
        self.refuses: int | None = None
        #: hands out the first half of an image's data, and ends
        self.breaks_off = False
        #: what it says that an image's data is
        self.content_type = 'application/octet-stream'
        #: as long as this is not set, data stops half-way
        self.goes_on = threading.Event()
        self.goes_on.set()
        super().__init__(self._handler())

    def add(self, data: bytes, **facts: Any) -> str:
        """Take an image in; answers its uuid."""
        name = str(uuid.uuid4())
        self.data[name] = data
        self.images[name] = {
            'id': name, 'status': 'active', 'visibility': 'private', 'owner': 'admin',
            'size': len(data), 'os_hash_algo': 'sha512',
            'os_hash_value': hashlib.sha512(data).hexdigest()} | facts
        return name

    def found(self, parameters: dict[str, str]) -> list[dict[str, Any]]:
        """Images in the order of their ids, as an administrator finds them."""
        visibility = parameters.get('visibility')
        return [image for _, image in sorted(self.images.items())
                if all(image.get(name) == value for name, value in parameters.items()
                       if name not in NO_FILTERS)
                and (visibility == 'all' or image['visibility'] == visibility
                     or visibility is None and image['visibility'] != 'community')]

    def _handler(glance) -> type[neighbour.Handler]:
        class Handler(neighbour.Handler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition('?')
                _, version, collection, name, part = (*path.split('/'), '', '', '')[:5]
                if collection == 'images':
                    glance.requests.append(
                        (self.path, self.headers.get('X-OpenStack-Request-ID')))
                if glance.refuses:
                    self._refuse(glance.refuses, 'So I was told.')
                elif collection == 'schemas' and name in SCHEMAS:
                    self.answer(200, SCHEMAS[name])
                elif collection == 'images' and not name:
                    self._list(dict(urllib.parse.parse_qsl(query)))
                elif version != 'v2' or name not in glance.images:
                    self._refuse(404, f'No image found with ID {name}')
                elif part == 'file':
                    self._send(glance.data[name])
                elif part == 'members':
                    self.answer(200, {'members': [
                        {'member_id': each, 'image_id': name, 'status': status}
                        for each, status in glance.members.get(name, {}).items()]})
                else:
                    self.answer(200, glance.images[name])

            def _refuse(self, status: int, why: str) -> None:
                """In HTML, as the real one does."""
                text = f'<html><body><h1>{status}</h1>\n{why}</body></html>'.encode()
                self.begin(status, 'text/html; charset=UTF-8', len(text))
                self.wfile.write(text)

            def _list(self, parameters: dict[str, str]) -> None:
                limit = min(int(parameters.get('limit', PAGE)), PAGE)
                rest = [image for image in glance.found(parameters)
                        if image['id'] > parameters.get('marker', '')]
                answer: dict[str, Any] = {'images': rest[:limit]}
                if len(rest) > limit:
                    answer['next'] = '/v2/images?' + urllib.parse.urlencode(
                        parameters | {'marker': rest[limit - 1]['id']})
                self.answer(200, answer)

            def _send(self, data: bytes) -> None:
                if not data:
                    self.send_response(204)
                    self.end_headers()
                    return
                self.begin(200, glance.content_type, len(data))
                with contextlib.suppress(ConnectionError):  # nobody reads on
                    self.wfile.write(data[:len(data) // HALF])
                    glance.goes_on.wait()
                    if glance.breaks_off:
                        self.close_connection = True
                    else:
                        self.wfile.write(data[len(data) // HALF:])
        return Handler
