# SPDX-License-Identifier: Apache-2.0
"""Runs Cyborg in one child process: SQLite, messages in memory, Placement in process."""

import pathlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from cyborg.clients import embedded_placement, wsgi
from cyborg.cmd import startup
from cyborg.standalone import PLACEMENT
from tests.fixtures.cloud import Cloud
from tests.fixtures.identity import Served
from tools.bench.children import serve
from tools.bench.operation_counts import Counter

SETTINGS = """
[DEFAULT]
log_file = {directory}/cyborg.log
[agent]
# periodic work would be included in the counts
resync_interval = 86400
[conductor]
heartbeat_timeout = 86400
[fake_driver]
devices = 16
accelerators = 16
"""


class TimedPlacement:
    """Placement, and the CPU seconds of its requests."""

    def __init__(self, path: pathlib.Path) -> None:
        self._application = embedded_placement.load(path)
        self.spent = 0.0

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        began = time.thread_time()
        try:
            return self._application(environ, start_response)
        finally:
            self.spent += time.thread_time() - began


def main() -> None:
    directory, host, threads = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    directory.mkdir(exist_ok=True)
    cloud = Cloud(directory, more=SETTINGS.format(directory=directory))
    cloud.start()
    placement = TimedPlacement(directory / 'placement.db')
    wsgi.mount(cloud.placement.session.session, PLACEMENT, placement)
    cloud.host(host)
    cloud.rest(host)
    startup.settle_memory()
    counter = Counter(cloud.standalone)
    with Served(cloud, threads=threads) as served:

        def where() -> dict[str, Any]:
            return {
                'url': served.url.removesuffix('/v2'),
                'database': str(cloud.standalone.conf.database.connection),
                'placement_database': f'sqlite:///{directory}/placement.db',
            }

        commands = {
            'count': counter.start,
            'counted': counter.stop,
            'placement_cpu': lambda: placement.spent,
        }
        serve(commands, hello=where())
    cloud.stop()


if __name__ == '__main__':
    main()
