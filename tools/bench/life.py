# SPDX-License-Identifier: Apache-2.0
"""Measures the life of a request: create, bind, read by instance, delete; with one and several
clients, and with few and many stored requests."""

from collections.abc import Iterator

from tools.bench.figures import (
    Better,
    Figure,
    allowed_rate,
    latencies,
    life_floor,
    percentile,
)
from tools.bench.load import Series
from tools.bench.scale import Scale
from tools.bench.sites import THREADS, Site
from tools.bench.stored_rows import StoredRows

NAME = 'life'
STEPS = ('create', 'bind', 'read', 'delete', 'life')
PARTS = ('http', 'rpc', 'sql')
#: callers of the echo; more do not increase the rate
CALLERS = 8
#: the measuring time of a component, as a share of that of a life
PART = 0.3


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Measure with growing numbers of stored requests and of clients."""
    medians: list[tuple[int, float]] = []
    with StoredRows(site.database) as rows:
        for stored in scale.stored:
            rows.grow(stored)
            for clients in scale.clients:
                at = {'stored': stored, 'clients': clients}
                for figure in _measure(site, scale, at):
                    if (figure.what, clients) == ('life to floor', 1):
                        medians.append((stored, figure.value))
                    yield figure
    # compare ratios to the floor, since the speed of the machine may have changed
    for stored, ratio in medians[1:]:
        yield Figure(NAME, 'life to empty', '×', ratio / medians[0][1], {'stored': stored})


def _measure(site: Site, scale: Scale, at: dict[str, int]) -> Iterator[Figure]:
    clients, short = at['clients'], scale.seconds * PART
    lives = Series(site.processes | site.servers)
    floor = {name: Series({name: site.bare_processes[name]}) for name in PARTS}
    for _ in range(
        scale.rounds
    ):  # in turns, so that a change of the machine's speed affects all of them
        with floor['http'] as series:
            series.add(site.bare_http(clients, short), clients)
        with floor['rpc'] as series:
            series.add(site.bare_rpc(min(clients, CALLERS), short), min(clients, CALLERS))
        with floor['sql'] as series:
            series.add(site.bare_sql(min(clients, THREADS), short), min(clients, THREADS))
        with lives as series:
            series.add(site.run('life', clients, scale.seconds, **site.life), clients)
    for step in STEPS:
        yield from latencies(NAME, step, lives.samples[step], at)
    yield Figure(NAME, 'lives', '1/s', lives.rate, at, Better.MORE)
    for name, seconds in lives.cpu('life').items():
        yield Figure(NAME, f'CPU {name}', 'ms', seconds * 1000, at)
    yield from _floor(floor, lives, at)
    yield from _cpu(floor, lives, site, at)


def _floor(floor: dict[str, Series], lives: Series, at: dict[str, int]) -> Iterator[Figure]:
    """Yield the components, their sum, and the ratio of a life to it."""
    medians = {name: percentile(floor[name].samples['once'], 50) for name in PARTS}
    rates = {name: floor[name].rate for name in PARTS}
    least, most = life_floor(**medians), allowed_rate(**rates)
    for name in PARTS:
        yield _about(f'{name} p50', 'ms', medians[name] * 1000, at)
        yield _about(f'{name}', '1/s', rates[name], at)
    yield _about('life p50', 'ms', least * 1000, at)
    yield _about('lives', '1/s', most, at)
    if at['clients'] == 1:
        yield Figure(NAME, 'life to floor', '×', percentile(lives.samples['life'], 50) / least, at)
    yield Figure(NAME, 'lives to floor', '×', lives.rate / most, at, Better.MORE)


def _cpu(
    floor: dict[str, Series], lives: Series, site: Site, at: dict[str, int]
) -> Iterator[Figure]:
    """Yield the same in CPU time, which varies less on a busy machine."""
    parts = {name: floor[name].cpu('once')[name] for name in PARTS}
    for name in PARTS:
        yield _about(f'CPU {name}', 'ms', parts[name] * 1000, at)
    least, taken = life_floor(**parts), lives.cpu('life')
    yield _about('CPU life', 'ms', least * 1000, at)
    ours = sum(taken[name] for name in site.processes)
    yield Figure(NAME, 'CPU of ours', 'ms', ours * 1000, at)
    if least:  # otherwise it was too short to be measured
        yield Figure(NAME, 'CPU to floor', '×', ours / least, at)


def _about(what: str, unit: str, value: float, at: dict[str, int]) -> Figure:
    return Figure(NAME, f'floor {what}', unit, value, at, Better.NONE)
