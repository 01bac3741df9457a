# SPDX-License-Identifier: Apache-2.0
"""Measures the time from plugging in a card until Placement offers it, and from pulling it out
until Placement does not: ``python -m tools.bench.hotplug``.

The time ends when Placement's response to a scheduler's query changes. An agent learns of the
card in one of two ways: from the hook of a simulated host in the same process, or from uevents
that the kernel sends about a simulated /sys in private namespaces.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.hotplug import UdevMonitor
from cyborg.sim import namespace
from tests.fixtures.cloud import Cloud
from tests.fixtures.hosts import SimHost
from tools.bench.figures import Figure
from tools.bench.scale import Scale
from tools.bench.sites import Site

NAME = 'hotplug'
ROOT = Path(__file__).parents[2]
DRIVERS = ('intel_qat_driver', 'nvidia_gpu_driver', 'intel_fpga_driver', 'nvme_driver')
#: The cards that stay in the host, and the card that is plugged in and pulled out.
CARDS = [
    {'model': '8086:4940', 'at': '0000:6b:00.0', 'vfs': 4},
    {'model': '144d:a80a', 'at': '0000:c5:00.0'},
    {'model': '8086:09c4', 'at': '0000:5e:00.0'},
]
CARD = {'model': '10de:2331', 'at': '0000:3b:00.0'}
QUERY = '/allocation_candidates?resources=PGPU:1&required=OWNER_CYBORG'
VERSION = {'OpenStack-API-Version': 'placement 1.39'}
#: The timer must not find the card, and no log line may stand between the figures.
SETTINGS = '[DEFAULT]\nuse_stderr = false\n[agent]\nresync_interval = 3600\n'
PATIENCE, PAUSE = 60.0, 0.02  #: seconds; queries without a pause would slow down the agent

Way = dict[str, Any]


class MountedHost:
    """The simulated host that is mounted at the /sys of this process."""

    drivers = DRIVERS
    monitor = UdevMonitor

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.sysfs = Sysfs()
        self._controls = self.sysfs.path / namespace.CONTROLS

    def plug_in(self, **card: Any) -> None:
        (self._controls / 'plug_in').write_text(json.dumps(card))

    def pull_out(self, address: str) -> None:
        (self._controls / 'pull_out').write_text(address)


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Measure each way that this machine allows, in an all-in-one deployment of its own."""
    for way, found in measure_ways(scale.plugs).items():
        if isinstance(found, dict) and 'skipped' not in found:
            for verb, seconds in found.items():
                for name, value in seconds.items():
                    yield Figure(NAME, f'{verb} {name}', 's', value, {'way': way})


def measure_ways(rounds: int = 20) -> dict[str, Any]:
    """Return for each way the seconds for plugging in and pulling out, or why it was skipped."""
    return {'rounds': rounds, 'hook': by_hook(rounds), 'netlink': by_netlink(rounds)}


def by_hook(rounds: int) -> Way:
    """The hook of the simulated host wakes the agent."""
    return _measure(rounds, lambda cloud: cloud.host(make=SimHost, cards=CARDS, drivers=DRIVERS))


def by_netlink(rounds: int) -> Way:
    """Uevents of the kernel wake the agent, in a child process with private namespaces."""
    if why := namespace.why_not():
        return {'skipped': why}
    with tempfile.TemporaryDirectory(prefix='cyborg-bench-') as name:
        description = Path(name) / 'host.yaml'
        description.write_text(yaml.safe_dump({'cards': CARDS}))
        command = [
            sys.executable,
            '-W',
            'ignore',
            '-m',
            'tools.bench.hotplug',
            '--mounted',
            '--rounds',
            str(rounds),
        ]
        done = subprocess.run(
            namespace.command_line(description, command),
            cwd=ROOT,
            text=True,
            env=os.environ | {'PYTHONPATH': str(ROOT)},
            capture_output=True,
        )
    if done.returncode:
        raise RuntimeError(f'The measurement in a simulated /sys failed: {done.stderr[-2000:]}')
    way: Way = json.loads(done.stdout.splitlines()[-1])
    return way


def _measure(rounds: int, start: Callable[[Cloud], Any]) -> Way:
    with tempfile.TemporaryDirectory(prefix='cyborg-bench-') as name:
        directory = Path(name)
        cloud = Cloud(directory, more=SETTINGS)
        cloud.start()
        try:
            host = start(cloud)
            plug, unplug = zip(*_rounds(cloud, host, rounds), strict=True)
        finally:
            cloud.stop()
    return {'plug': _summary(plug), 'unplug': _summary(unplug)}


def _rounds(cloud: Cloud, host: Any, count: int) -> Iterator[tuple[float, float]]:
    for _ in range(count):
        yield (
            _time(cloud, lambda: host.plug_in(**CARD), is_there=True),
            _time(cloud, lambda: host.pull_out(CARD['at']), is_there=False),
        )


def _time(cloud: Cloud, act: Callable[[], None], is_there: bool) -> float:
    began = time.monotonic()
    act()
    while bool(_candidates(cloud)) is not is_there:
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(f'Placement has not changed after {PATIENCE:.0f} seconds')
        time.sleep(PAUSE)
    return time.monotonic() - began


def _candidates(cloud: Cloud) -> list[Any]:
    """Return the allocation requests that a scheduler would find."""
    found: list[Any] = cloud.placement.get(QUERY, headers=VERSION).json()['allocation_requests']
    return found


def _summary(samples: tuple[float, ...]) -> dict[str, float]:
    return {
        'median': statistics.median(samples),
        'max': max(samples),
        'p90': statistics.quantiles(samples, n=10)[-1] if len(samples) > 1 else samples[0],
    }


def _table(found: dict[str, Any]) -> Iterator[str]:
    yield f'{"seconds":10}{"":8}{"median":>8}{"p90":>8}{"max":>8}   ({found["rounds"]} rounds)'
    for name in ('hook', 'netlink'):
        if 'skipped' in found[name]:
            yield f'{name:10}skipped: {found[name]["skipped"]}'
            continue
        for verb, figures in found[name].items():
            yield f'{name:10}{verb:8}' + ''.join(
                f'{figures[each]:8.3f}' for each in ('median', 'p90', 'max')
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog='python -m tools.bench.hotplug', description=__doc__)
    parser.add_argument('--rounds', type=int, default=20, help='default: %(default)s')
    parser.add_argument(
        '--mounted',
        action='store_true',
        help='measure in this process, whose /sys is simulated, and print JSON',
    )
    options = parser.parse_args()
    if options.mounted:
        print(json.dumps(_measure(options.rounds, lambda cloud: cloud.host(make=MountedHost))))
    else:
        print('\n'.join(_table(measure_ways(options.rounds))))


if __name__ == '__main__':
    main()
