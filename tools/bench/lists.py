# SPDX-License-Identifier: Apache-2.0
"""Measures lists and single items, with few and with many rows."""

import time
from collections.abc import Iterator

from tools.bench.figures import Better, Figure, percentile
from tools.bench.scale import Scale
from tools.bench.sites import Site
from tools.bench.stored_rows import StoredRows

NAME = 'lists'
#: path -> key of the list in the document
COLLECTIONS = {
    '/devices': 'devices',
    '/deployables': 'deployables',
    '/accelerator_requests': 'arqs',
}
#: the largest page
PAGE = 1_000


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Measure a page, one item, and all pages of each collection."""
    with StoredRows(site.database) as rows:
        for count in scale.devices:
            rows.grow_devices(count)
            rows.grow(count)
            for path, key in COLLECTIONS.items():
                yield from _page(site, scale, path, key, {'devices': count, 'of': key})
                if count > PAGE:
                    yield from _pages(site, path, key, {'devices': count, 'of': key})


def _page(
    site: Site, scale: Scale, path: str, key: str, at: dict[str, int | str]
) -> Iterator[Figure]:
    """Measure a list, the bare query of its rows, and one item, in turns."""
    url = f'/v2{path}?limit={PAGE}'
    first, *_ = site.ask('GET', f'{path}?limit=1')[key]
    lists: list[float] = []
    queries: list[float] = []
    shows: list[float] = []
    for _ in range(scale.rounds):
        lists += site.run('once', 1, scale.seconds / 2, path=url).samples['once']
        queries += site.bare_query(key, PAGE, scale.seconds / 4).samples['once']
        shows += site.run('once', 1, scale.seconds / 4, path=f'/v2{path}/{first["uuid"]}').samples[
            'once'
        ]
    listed, queried = percentile(lists, 50), percentile(queries, 50)
    yield Figure(NAME, 'list p50', 'ms', listed * 1000, at)
    yield Figure(NAME, 'list p95', 'ms', percentile(lists, 95) * 1000, at)
    yield Figure(NAME, 'floor query p50', 'ms', queried * 1000, at, Better.NONE)
    yield Figure(NAME, 'list more than query', 'ms', (listed - queried) * 1000, at)
    yield Figure(NAME, 'show p50', 'ms', percentile(shows, 50) * 1000, at)


def _pages(site: Site, path: str, key: str, at: dict[str, int | str]) -> Iterator[Figure]:
    """Measure the time per item on the first and on the last pages."""
    costs, marker = [], ''
    while True:
        began = time.perf_counter()
        found = site.ask('GET', f'{path}?limit={PAGE}&sort_dir=asc{marker}')[key]
        if len(found) < PAGE:
            break
        costs.append((time.perf_counter() - began) / len(found))
        marker = f'&marker={found[-1]["uuid"]}'
    half = len(costs) // 2
    early, late = (percentile(part, 50) for part in (costs[:half], costs[half:]))
    yield Figure(NAME, 'item on early pages', 'ms', early * 1000, at)
    yield Figure(NAME, 'item on late pages', 'ms', late * 1000, at)
    yield Figure(NAME, 'late to early', '×', late / early, at)
