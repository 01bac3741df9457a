# SPDX-License-Identifier: Apache-2.0
"""A stand-in for Glance to which the openstack command can upload images. It keeps them in a
directory."""

import hashlib
import json
import pathlib
import uuid
from typing import Any

from oslo_log import log

from cyborg.sim import glance

LOG = log.getLogger(__name__)

#: bytes; the stand-in holds images in memory
LARGEST = 256 * 2**20


class Handler(glance.Handler):
    """Handles one request: those of the fake Glance, versions, uploads and deletions."""

    glance: 'Images'

    def do_GET(self) -> None:
        if self.path.partition('?')[0].rstrip('/') in ('', '/v2'):
            self.send_json(
                300,
                {
                    'versions': [
                        {
                            'id': 'v2.17',
                            'status': 'CURRENT',
                            'links': [{'rel': 'self', 'href': f'{self.glance.url}/v2/'}],
                        }
                    ]
                },
            )
        else:
            super().do_GET()

    def do_POST(self) -> None:
        if self.path.rstrip('/') != '/v2/images':
            self._refuse(404, 'Not found')
            return
        try:
            facts = json.loads(self._body())
            name = str(uuid.UUID(facts.pop('id', None) or str(uuid.uuid4())))
        except (ValueError, TypeError, AttributeError) as error:
            self._refuse(400, f'The body is not an image in JSON: {error}')
            return
        self.send_json(201, self.glance.create(name, facts))

    def do_PUT(self) -> None:
        _, _, collection, name, part = (*self.path.split('/'), '', '', '', '')[:5]
        data = self._body()
        if (collection, part) != ('images', 'file') or name not in self.glance.images:
            self._refuse(404, f'No image found with ID {name}')
        elif len(data) > LARGEST:
            self._refuse(413, f'This stand-in for Glance takes images of up to {LARGEST} bytes.')
        else:
            self.glance.upload(name, data)
            self._done()

    def do_DELETE(self) -> None:
        _, _, collection, name = (*self.path.split('/'), '', '', '')[:4]
        if collection != 'images' or name not in self.glance.images:
            self._refuse(404, f'No image found with ID {name}')
        else:
            self.glance.delete(name)
            self._done()

    def _done(self) -> None:
        self.send_response(204)
        self.end_headers()

    def _body(self) -> bytes:
        """Read the body. Uploads may come in chunks, since clients stream them."""
        if self.headers.get('Transfer-Encoding', '').lower() != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length') or 0))
        parts: list[bytes] = []
        while size := int(self.rfile.readline().split(b';')[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b''.join(parts)


class Images(glance.Glance):
    """The images of a standalone."""

    handler = Handler

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self._directory = directory
        for path in sorted(directory.glob('*.json')):
            try:
                facts = json.loads(path.read_text())
            except ValueError:
                LOG.warning(
                    'The image in %s cannot be read: it is left out. Delete the file.', path
                )
                continue
            self.images[path.stem] = facts
            data = path.with_suffix('.data')
            self.data[path.stem] = data.read_bytes() if data.exists() else b''

    def create(self, name: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Create an image without data; returns it. ``name`` is its uuid."""
        self.images[name] = {
            'visibility': 'shared',
            'owner': 'demo',
            'protected': False,
            'tags': [],
            'size': None,
            'os_hash_algo': None,
            'os_hash_value': None,
            'checksum': None,
        } | facts
        self.images[name] |= {
            'id': name,
            'status': 'queued',
            'file': f'/v2/images/{name}/file',
            'self': f'/v2/images/{name}',
            'schema': '/v2/schemas/image',
        }
        self.data[name] = b''
        self._save(name)
        return self.images[name]

    def upload(self, name: str, data: bytes) -> None:
        """Give an image its data."""
        self.data[name] = data
        self.images[name] |= {
            'status': 'active',
            'size': len(data),
            'checksum': hashlib.md5(data, usedforsecurity=False).hexdigest(),
            'os_hash_algo': 'sha512',
            'os_hash_value': hashlib.sha512(data).hexdigest(),
        }
        self._save(name)

    def delete(self, name: str) -> None:
        """Delete an image and its data."""
        for path in self._paths(name):
            path.unlink(missing_ok=True)
        del self.images[name], self.data[name]

    def _save(self, name: str) -> None:
        self._directory.mkdir(exist_ok=True)
        facts, data = self._paths(name)
        _replace(data, self.data[name])
        _replace(facts, json.dumps(self.images[name], indent=1).encode())

    def _paths(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
        return self._directory / f'{name}.json', self._directory / f'{name}.data'


def _replace(path: pathlib.Path, content: bytes) -> None:
    """Write a file whole, or not at all: the disk may be full."""
    new = path.with_suffix('.new')
    new.write_bytes(content)
    new.replace(path)
