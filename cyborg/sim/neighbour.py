# SPDX-License-Identifier: Apache-2.0
"""What stand-ins for other services have in common: real HTTP, in a thread of this process."""

import http.server
import json
import threading
from typing import Any


class Neighbour:
    """A service with a URL; those who inherit give it the handler of its requests."""

    def __init__(self, handler: type['Handler']) -> None:
        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        self._server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self._server.server_port}'

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,),
                         name=type(self).__name__.lower(), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    """One request; answers in JSON."""

    protocol_version = 'HTTP/1.1'

    def answer(self, status: int, body: Any) -> None:
        self.begin(status, 'application/json', len(text := json.dumps(body).encode()))
        self.wfile.write(text)

    def begin(self, status: int, kind: str, length: int) -> None:
        """All that comes before the body."""
        self.send_response(status)
        self.send_header('Content-Type', kind)
        self.send_header('Content-Length', str(length))
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Requests are remembered, not printed."""
