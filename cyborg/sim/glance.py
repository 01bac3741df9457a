# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Glance: shows images and hands out their data over real HTTP."""

import hashlib
import threading
import uuid
from typing import Any

from cyborg.sim import neighbour

HALF = 2


class Glance(neighbour.Neighbour):
    """Holds what it is given. What it says of an image can be changed afterwards."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.data: dict[str, bytes] = {}
        #: the projects with which an image is shared, by its uuid
        self.members: dict[str, list[str]] = {}
        #: paths, with the request id that came along
        self.requests: list[tuple[str, str | None]] = []
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

    def _handler(glance) -> type[neighbour.Handler]:
        class Handler(neighbour.Handler):
            def do_GET(self) -> None:
                glance.requests.append((self.path, self.headers.get('X-OpenStack-Request-ID')))
                name, _, part = self.path.removeprefix('/v2/images/').partition('/')
                if name not in glance.images:
                    self.answer(404, {'message': f'No image found with ID {name}'})
                elif part == 'file':
                    self._send(glance.data[name])
                elif part == 'members':
                    self.answer(200, {'members': [
                        {'member_id': each} for each in glance.members.get(name, [])]})
                else:
                    self.answer(200, glance.images[name])

            def _send(self, data: bytes) -> None:
                self.begin(200, 'application/octet-stream', len(data))
                self.wfile.write(data[:len(data) // HALF])
                glance.goes_on.wait()
                self.wfile.write(data[len(data) // HALF:])
        return Handler
