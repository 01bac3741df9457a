# SPDX-License-Identifier: Apache-2.0
"""cyborg-api: the REST API with a small server of its own; production mounts cyborg.wsgi.api."""

import threading
import time
from typing import Any, NoReturn

import waitress.server
from oslo_config import cfg
from oslo_log import log
from oslo_utils import netutils
from waitress import wasyncore

from cyborg import errors, metrics, rpc
from cyborg.api import app, waiting
from cyborg.cmd import startup
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)
#: seconds for which a stopping server waits for the rest of a request that arrives in parts
LINGER = 5
#: Bytes of a body that waitress receives, and buffers on disk. The sizelimit middleware in the
#: pipeline allows far less, and answers larger requests.
LARGEST_BODY = 16 * 2**20


class Server:
    """A WSGI application on a port, served by threads."""

    def __init__(self, application: Any, host: str, port: int, threads: int) -> None:
        try:
            self._server = waitress.server.create_server(
                application,
                host=host,
                port=port,
                threads=threads,
                ident='cyborg',
                max_request_body_size=LARGEST_BODY,
                # http_proxy_to_wsgi in the pipeline decides whether to trust a proxy
                clear_untrusted_proxy_headers=False,
            )
        except OSError as error:
            raise errors.ConfigError(
                why=f'Cannot listen on {host}:{port}: {error.strerror}.'
            ) from error
        self.port: int = self._server.effective_port
        self.url = f'http://{netutils.escape_ipv6(host)}:{self.port}'
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._server.run, name='http', daemon=True)

    def start(self) -> None:
        self._thread.start()
        LOG.info('Serving on %s', self.url)

    def stop(self) -> None:
        """Stop listening, and return when every accepted request has been answered completely.

        waitress can only close at once, so this uses the inside of its server.
        """
        # only the thread that serves may touch the sockets
        run_in_server_thread = self._server.trigger.pull_trigger
        run_in_server_thread(self._close_listener)
        self._is_closed.wait()
        while self._server.active_channels:
            run_in_server_thread(self._close_idle)
            time.sleep(0.02)
        run_in_server_thread(self._server.trigger.close)
        self._thread.join()
        self._server.task_dispatcher.shutdown()

    def _close_listener(self) -> None:
        wasyncore.dispatcher.close(self._server)
        self._is_closed.set()

    def _close_idle(self) -> None:
        for channel in self._server.active_channels.values():
            is_new = channel.last_activity == channel.creation_time
            is_arriving = (
                channel.request or is_new
            ) and time.time() - channel.last_activity < LINGER
            if not (channel.requests or channel.total_outbufs_len or is_arriving):
                channel.will_close = True


class ApiService:
    """The API on the configured port. It listens after start() only, so that several can be
    built."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        app.require_local_noauth(conf, conf.api.host_ip)
        if conf.api.enable_ssl_api:  # refused: tokens would travel in plain text
            raise errors.ConfigError(
                why='[api] enable_ssl_api is not offered any more: unset it, and have a proxy or '
                'a WSGI server end TLS.'
            )
        waiting.leave_a_thread(conf, conf.api.api_workers, 'Set [api] api_workers to more')
        self._conf = conf
        self._application = app.load_app(
            conf, ConductorAPI(rpc.transport(conf), rpc.Limits.of_api(conf))
        )
        self._server: Server | None = None
        self._metrics = metrics.Listener(conf.api.metrics_host, conf.api.metrics_port)

    def start(self) -> None:
        options = self._conf.api
        self._server = Server(self._application, options.host_ip, options.port, options.api_workers)
        self._server.start()
        self._metrics.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._metrics.stop()


def main() -> NoReturn:
    startup.serve(ApiService)
