# SPDX-License-Identifier: Apache-2.0
"""A fake SPDK daemon: responds to JSON-RPC on a UNIX socket."""

import json
import socketserver
import threading
from pathlib import Path
from typing import Any

VERSION = {'version': 'SPDK v24.09', 'fields': {'major': 24, 'minor': 9, 'patch': 0}}
BDEVS = [
    {
        'name': 'Nvme0n1',
        'product_name': 'NVMe disk',
        'block_size': 512,
        'num_blocks': 2097152,
        'uuid': '2b7d5c6a-8f11-4d3e-9a55-6a1f0c9e7b10',
        'claimed': True,
    }
]
SUBSYSTEMS = [
    {
        'nqn': 'nqn.2014-08.org.nvmexpress.discovery',
        'subtype': 'Discovery',
        'listen_addresses': [],
        'allow_any_host': True,
        'hosts': [],
    },
    {
        'nqn': 'nqn.2016-06.io.spdk:cnode1',
        'subtype': 'NVMe',
        'serial_number': 'SPDK00000000000001',
        'listen_addresses': [
            {'trtype': 'TCP', 'adrfam': 'IPv4', 'traddr': '192.0.2.7', 'trsvcid': '4420'}
        ],
        'namespaces': [{'nsid': 1, 'bdev_name': 'Nvme0n1', 'name': 'Nvme0n1'}],
    },
]


class Spdk:
    """``results`` holds the result of each method; ``raw`` replaces every response by bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Any] = {
            'spdk_get_version': VERSION,
            'bdev_get_bdevs': BDEVS,
            'nvmf_get_subsystems': SUBSYSTEMS,
        }
        self.raw: bytes | None = None
        self._server = socketserver.ThreadingUnixStreamServer(str(path), self._handler())
        self._server.daemon_threads = True

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name='spdk', daemon=True
        ).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)

    def _respond(self, request: dict[str, Any]) -> bytes:
        if self.raw is not None:
            return self.raw
        method, response = request['method'], {'jsonrpc': '2.0', 'id': request['id']}
        if method in self.results:
            return json.dumps(response | {'result': self.results[method]}).encode()
        return json.dumps(
            response | {'error': {'code': -32601, 'message': 'Method not found'}}
        ).encode()

    def _handler(spdk) -> type[socketserver.BaseRequestHandler]:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while received := self.request.recv(65536):
                    response = spdk._respond(json.loads(received))
                    # in pieces: a client must find the end of a response by parsing it
                    for start in range(0, len(response), 100):
                        self.request.sendall(response[start : start + 100])

        return Handler
