# SPDX-License-Identifier: Apache-2.0
"""A real HTTP server in a thread of this process: the base of the fake Nova and Glance."""

import http.server
import json
import threading
from typing import Any


class HttpServer:
    """Serves requests at ``url`` with the handler that the subclass gives."""

    def __init__(self, handler: type['JsonHandler']) -> None:
        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        self._server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self._server.server_port}'

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever,
            args=(0.05,),
            name=type(self).__name__.lower(),
            daemon=True,
        ).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class JsonHandler(http.server.BaseHTTPRequestHandler):
    """Handles one request and responds with JSON."""

    protocol_version = 'HTTP/1.1'

    def send_json(self, status: int, body: Any) -> None:
        self.send_head(status, 'application/json', len(text := json.dumps(body).encode()))
        self.wfile.write(text)

    def send_head(self, status: int, content_type: str, length: int) -> None:
        """Send the status line and the headers."""
        self.send_response(status)
        self.send_header('Content-Type', content_type)
        self.send_header('Content-Length', str(length))
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Print nothing: the subclass of HttpServer records the requests."""
