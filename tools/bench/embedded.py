# SPDX-License-Identifier: Apache-2.0
"""A whole Cyborg in one child process: SQLite, messages in memory, Placement's application."""

import pathlib
import sys
from typing import Any

from cyborg.cmd import startup
from tests.fixtures.cloud import Cloud
from tests.fixtures.identity import Served
from tools.bench.children import obey
from tools.bench.counting import Counter

SETTINGS = """
[DEFAULT]
log_file = {directory}/cyborg.log
[agent]
# what it does of its own would be among the counts
resync_interval = 86400
[conductor]
heartbeat_timeout = 86400
[fake_driver]
devices = 16
accelerators = 16
"""


def main() -> None:
    directory, host, threads = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    directory.mkdir(exist_ok=True)
    cloud = Cloud(directory, more=SETTINGS.format(directory=directory))
    cloud.start()
    cloud.host(host)
    cloud.rest(host)
    startup.settle()
    counter = Counter(cloud.standalone)
    with Served(cloud, threads=threads) as served:
        def where() -> dict[str, Any]:
            return {'url': served.url.removesuffix('/v2'),
                    'database': str(cloud.standalone.conf.database.connection)}
        obey({'count': counter.start, 'counted': counter.stop}, hello=where())
    cloud.stop()


if __name__ == '__main__':
    main()
