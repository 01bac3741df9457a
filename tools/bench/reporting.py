# SPDX-License-Identifier: Apache-2.0
"""An agent makes its rounds one by one: a child process that times and counts them.

Conductor, agent and Placement are here; the environment says, as to tests, over which broker
and on which database they work.
"""

import itertools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

from cyborg.agent.service import Agent
from cyborg.clients.placement import Placement
from cyborg.sim import nova
from tests.fixtures.cloud import Cloud, Silence, eventually
from tests.fixtures.hosts import SimHost
from tools.bench.children import obey
from tools.bench.counting import Counter

DRIVERS = ('nvidia_gpu_driver', 'intel_qat_driver')
SETTINGS = """
[DEFAULT]
log_file = {directory}/cyborg.log
[gpu_devices]
enabled_vgpu_types = nvidia-222
"""
GPU, QAT = '10de:1eb8', '8086:4940'
#: what hosts have: vGPUs, 16 a GPU, and virtual functions
HOSTS: dict[str, list[dict[str, Any]]] = {
    'small': [{'model': GPU, 'at': '0000:3b:00.0'}, {'model': GPU, 'at': '0000:3c:00.0'},
              {'model': QAT, 'at': '0000:6b:00.0', 'vfs': 1},
              {'model': QAT, 'at': '0000:6c:00.0', 'vfs': 1}],
    'large': [*({'model': GPU, 'at': f'0000:{0x30 + n:02x}:00.0'} for n in range(8)),
              *({'model': QAT, 'at': f'0000:{0x60 + n:02x}:00.0', 'vfs': 16}
                for n in range(4))],
}
MORE = {'model': GPU, 'at': '0000:d8:00.0'}


class Rounds:
    """Hosts, each new to everybody, whose rounds are made here and now."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._counter = Counter(cloud.standalone)
        self._number = itertools.count()

    def measure(self, size: str) -> dict[str, dict[str, float]]:
        """Seconds and counts of each round of a host."""
        name = f'{size}{next(self._number)}'
        host = SimHost(name, self._cloud.directory / name, HOSTS[size], DRIVERS)
        nova.make_compute_node(self._cloud.placement, name)
        standalone = self._cloud.standalone
        agent = Agent(standalone.conf, standalone.transport, name,
                      Placement(standalone.placement), None, host.sysfs, make_monitor=Silence,
                      driver_names=list(DRIVERS))
        look = agent.inventory.sync

        def look_and_beat() -> None:
            look()
            agent.inventory.beat()
        found = {'first': self._round(look), 'ready': self._round(look),
                 'unchanged': self._round(look_and_beat)}
        host.plug_in(**MORE)
        found['one card more'] = self._round(look)
        return found

    def _round(self, make: Callable[[], None]) -> dict[str, float]:
        self._counter.start()
        began = time.perf_counter()
        make()
        seconds = time.perf_counter() - began
        # nobody waits for what a cast has done
        eventually(lambda: self._counter.counts['statements'])
        return {'seconds': seconds} | self._counter.stop()


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir()
    cloud = Cloud(directory, more=SETTINGS.format(directory=directory))
    cloud.start()
    obey({'measure': Rounds(cloud).measure})
    cloud.stop()


if __name__ == '__main__':
    main()
