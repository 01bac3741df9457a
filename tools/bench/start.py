# SPDX-License-Identifier: Apache-2.0
"""Measures the start of services, and their memory and threads, idle and after load."""

from collections.abc import Iterator

from tools import process_usage
from tools.bench.figures import REQUESTS, Figure
from tools.bench.scale import Scale
from tools.bench.sites import Site

NAME = 'start'
CLIENTS = 16


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Restart each service, then put load on them, and measure memory before and after."""
    for service, seconds in site.start_times():
        yield Figure(NAME, 'start', 's', seconds, {'service': service})
    yield from _held(site, 'idle')
    made = 0
    while made < scale.requests:
        outcome = site.run('life', CLIENTS, scale.seconds, **site.life)
        made += REQUESTS * max(1, len(outcome.samples['life']))
    yield from _held(site, 'after load')


def _held(site: Site, when: str) -> Iterator[Figure]:
    for service, pids in site.processes.items():
        at = {'service': service, 'when': when}
        yield Figure(NAME, 'memory', 'MiB', process_usage.resident(pids), at)
        largest = max(process_usage.resident([pid]) for pid in pids)
        yield Figure(NAME, 'memory of the largest process', 'MiB', largest, at)
        yield Figure(NAME, 'threads', '1', process_usage.threads(pids), at)
