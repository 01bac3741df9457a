# SPDX-License-Identifier: Apache-2.0
"""How long services take to start, and what they hold: idle, and after load."""

from collections.abc import Iterator

from cyborg.sim import usage
from tools.bench.figures import Figure
from tools.bench.scale import Scale
from tools.bench.sites import Site

NAME = 'start'
CLIENTS = 16


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Start each anew, then load, then look again."""
    for service, seconds in site.start_times():
        yield Figure(NAME, 'start', 's', seconds, {'service': service})
    yield from _held(site, 'idle')
    for _ in range(scale.rounds):
        site.run('life', CLIENTS, scale.seconds, **site.life)
    yield from _held(site, 'after load')


def _held(site: Site, when: str) -> Iterator[Figure]:
    for service, pids in site.processes.items():
        at = {'service': service, 'when': when}
        yield Figure(NAME, 'memory', 'MiB', usage.resident(pids), at)
        yield Figure(NAME, 'threads', '1', usage.threads(pids), at)
