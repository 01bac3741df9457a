# SPDX-License-Identifier: Apache-2.0
"""Measures the rounds of an agent, its report and its publication, on a small and a large host.

A child process holds conductor, agent and Placement. The environment names their broker and
their database, as it does for the tests.
"""

import itertools
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from cyborg.agent.service import Agent
from cyborg.clients.placement import Placement
from cyborg.sim import nova
from tests.fixtures.cloud import Cloud, Silence, eventually
from tests.fixtures.hosts import SimHost
from tools.bench.children import Child, serve
from tools.bench.figures import Figure, percentile
from tools.bench.operation_counts import Counter
from tools.bench.scale import Scale
from tools.bench.sites import Site

NAME = 'report'
COUNTS = {
    'statements': 'statements',
    'calls': 'RPC calls',
    'casts': 'RPC casts',
    'placement': 'Placement calls',
}
DRIVERS = ('nvidia_gpu_driver', 'intel_qat_driver')
SETTINGS = """
[DEFAULT]
log_file = {directory}/cyborg.log
[gpu_devices]
enabled_vgpu_types = nvidia-222
"""
GPU, QAT = '10de:1eb8', '8086:4940'
#: the cards of each size of host; each GPU has 16 vGPUs
HOSTS: dict[str, list[dict[str, Any]]] = {
    'small': [
        {'model': GPU, 'at': '0000:3b:00.0'},
        {'model': GPU, 'at': '0000:3c:00.0'},
        {'model': QAT, 'at': '0000:6b:00.0', 'vfs': 1},
        {'model': QAT, 'at': '0000:6c:00.0', 'vfs': 1},
    ],
    'large': [
        *({'model': GPU, 'at': f'0000:{0x30 + n:02x}:00.0'} for n in range(8)),
        *({'model': QAT, 'at': f'0000:{0x60 + n:02x}:00.0', 'vfs': 16} for n in range(4)),
    ],
}
ADDED_CARD = {'model': GPU, 'at': '0000:d8:00.0'}


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Measure the rounds of several hosts of each size."""
    with Child(
        'tools.bench.agent_rounds',
        str(site.directory / 'rounds'),
        log=site.directory / 'rounds.log',
        environ=site.engines(),
    ) as child:
        for size in ('small', 'large'):
            rounds = [child.execute('measure', size=size) for _ in range(scale.rounds)]
            for name in rounds[0]:
                at = {'host': size, 'round': name}
                yield Figure(
                    NAME,
                    'p50',
                    'ms',
                    1000 * percentile([each[name]['seconds'] for each in rounds], 50),
                    at,
                )
                for key, words in COUNTS.items():
                    yield Figure(NAME, words, '1', max(each[name][key] for each in rounds), at)


class Rounds:
    """Makes rounds of new hosts, one at a time, in this thread."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._counter = Counter(cloud.standalone)
        self._number = itertools.count()

    def measure(self, size: str) -> dict[str, dict[str, float]]:
        """Return the seconds and the counts of each round of a new host."""
        name = f'{size}{next(self._number)}'
        host = SimHost(name, self._cloud.directory / name, HOSTS[size], DRIVERS)
        nova.make_compute_node(self._cloud.placement, name)
        standalone = self._cloud.standalone
        agent = Agent(
            standalone.conf,
            standalone.transport,
            name,
            Placement(standalone.placement),
            None,
            host.sysfs,
            make_monitor=Silence,
            driver_names=list(DRIVERS),
        )
        look = agent.inventory.sync

        def look_and_beat() -> None:
            look()
            agent.inventory.beat()

        found = {
            'first': self._round(look),
            'ready': self._round(look),
            'unchanged': self._round(look_and_beat),
        }
        host.plug_in(**ADDED_CARD)
        found['one card more'] = self._round(look)
        return found

    def _round(self, make: Callable[[], None]) -> dict[str, float]:
        self._counter.start()
        began = time.perf_counter()
        make()
        seconds = time.perf_counter() - began
        # a cast returns before the conductor has handled it
        eventually(lambda: self._counter.counts['statements'])
        return {'seconds': seconds} | self._counter.stop()


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir()
    cloud = Cloud(directory, more=SETTINGS.format(directory=directory))
    cloud.start()
    serve({'measure': Rounds(cloud).measure})
    cloud.stop()


if __name__ == '__main__':
    main()
