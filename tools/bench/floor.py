# SPDX-License-Identifier: Apache-2.0
"""Measures the components without Cyborg: a child process with a bare RPC server, RPC callers, and
bare SQL.

Over a broker there are two such processes, a server and a caller, like the conductor and the API.
In memory there is one, which also serves the bare application.
"""

import argparse
import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from cyborg import in_process_transport
from cyborg.cmd import api
from tools.bench import bare_app, bare_sql
from tools.bench.children import serve

TOPIC = 'bare'
PAYLOAD = {'uuid': '00000000-0000-4000-8000-000000000000'}


class Echo:
    def echo(self, context: Any, value: Any) -> Any:
        return value


def transport(url: str) -> Any:
    """Return a transport like that of rpc.transport, without serializer and objects."""
    in_process_transport.install()
    conf = cfg.CONF
    conf([], project='bare', default_config_files=[], default_config_dirs=[])
    made = messaging.get_rpc_transport(conf, url)
    if url.startswith('kombu+memory'):
        conf.set_override('heartbeat_timeout_threshold', 0, 'oslo_messaging_rabbit')
    return made


def repeat(
    seconds: float,
    threads: int,
    make: Callable[[int], Callable[[], Any]],
) -> dict[str, Any]:
    """Repeat a function in several threads; returns the seconds of each call, and the number of
    calls per second."""

    def work(number: int) -> tuple[list[float], float]:
        do, taken = make(number), []
        do()
        ready.wait()
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            do()
            taken.append(time.perf_counter() - now)
        return taken, len(taken) / (now - began)

    ready = threading.Barrier(threads)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        done = list(pool.map(work, range(threads)))
    return {
        'samples': {'once': [each for taken, _ in done for each in taken]},
        'rate': sum(rate for _, rate in done),
    }


class Floor:
    """The commands of the parent process."""

    def __init__(self, url: str, database: str) -> None:
        self._transport = transport(url)
        self._engine = bare_sql.connect(database)

    def serve_rpc(self) -> None:
        """Start an RPC server."""
        server = messaging.get_rpc_server(
            self._transport, messaging.Target(topic=TOPIC, server='bare'), [Echo()]
        )
        server.start()

    def serve_http(self, threads: int) -> list[Any]:
        """Serve the bare application with the server of cyborg-api; returns its address."""
        server = api.Server(bare_app.application, '127.0.0.1', 0, threads)
        server.start()
        host, _, port = server.url.removeprefix('http://').rpartition(':')
        return [host, int(port)]

    def rpc(self, callers: int, seconds: float) -> dict[str, Any]:
        client = messaging.get_rpc_client(self._transport, messaging.Target(topic=TOPIC))
        return repeat(
            seconds, callers, lambda number: lambda: client.call({}, 'echo', value=PAYLOAD)
        )

    def sql(
        self, threads: int, seconds: float, profile: str, host: str, providers: list[str]
    ) -> dict[str, Any]:
        return repeat(
            seconds,
            threads,
            lambda number: (
                bare_sql.Life(self._engine, profile, host, providers[number % len(providers)]).live
            ),
        )

    def query(self, what: str, limit: int, seconds: float) -> dict[str, Any]:
        return repeat(seconds, 1, lambda number: lambda: bare_sql.read(self._engine, what, limit))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument('--transport', required=True)
    parser.add_argument('--database', required=True)
    options = parser.parse_args()
    floor = Floor(options.transport, options.database)
    serve(
        {name: getattr(floor, name) for name in ('serve_rpc', 'serve_http', 'rpc', 'sql', 'query')}
    )


if __name__ == '__main__':
    main()
