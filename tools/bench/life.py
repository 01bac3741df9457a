# SPDX-License-Identifier: Apache-2.0
"""One request's life: create, bind, read by instance, delete; alone, in a crowd, among many."""

from collections.abc import Iterator

from tools.bench import filling
from tools.bench.figures import (
    Better,
    Figure,
    allowed_rate,
    latencies,
    life_floor,
    percentile,
)
from tools.bench.load import Outcome, merge
from tools.bench.scale import Scale
from tools.bench.sites import THREADS, Site

NAME = 'life'
STEPS = ('create', 'bind', 'read', 'delete', 'life')
PARTS = ('http', 'rpc', 'sql')
#: callers of the echo that show what the broker allows at most
CALLERS = 8
#: of the time for a life, what each part of the floor gets
PART = 0.3


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Among more and more stored requests, with more and more clients."""
    with filling.Filling(site.database) as rows:
        for stored in scale.stored:
            rows.grow(stored)
            for clients in scale.clients:
                yield from _measure(site, scale, {'stored': stored, 'clients': clients})


def _measure(site: Site, scale: Scale, at: dict[str, int]) -> Iterator[Figure]:
    clients, short = at['clients'], scale.seconds * PART
    lives: list[Outcome] = []
    floor: dict[str, list[Outcome]] = {name: [] for name in PARTS}
    for _ in range(scale.rounds):  # in turns, so that the machine's moods hit all of them
        floor['http'].append(site.bare_http(clients, short))
        floor['rpc'].append(site.bare_rpc(min(clients, CALLERS), short))
        floor['sql'].append(site.bare_sql(min(clients, THREADS), short))
        lives.append(site.run('life', clients, scale.seconds, **site.life))
    together = _together(lives)
    for step in STEPS:
        yield from latencies(NAME, step, together.samples[step], at)
    yield Figure(NAME, 'lives', '1/s', together.rate, at, Better.MORE)
    yield from _floor({name: _together(parts) for name, parts in floor.items()}, together, at)


def _together(outcomes: list[Outcome]) -> Outcome:
    """What several rounds say."""
    return Outcome(merge(each.samples for each in outcomes),
                   sum(each.rate for each in outcomes) / len(outcomes))


def _floor(floor: dict[str, Outcome], lives: Outcome, at: dict[str, int]) -> Iterator[Figure]:
    """The parts, what they make together, and how far from it a life is."""
    def about(what: str, unit: str, value: float) -> Figure:
        return Figure(NAME, f'floor {what}', unit, value, at, Better.NONE)

    medians = {name: percentile(floor[name].samples['once'], 50) for name in PARTS}
    rates = {name: floor[name].rate for name in PARTS}
    least, most = life_floor(**medians), allowed_rate(**rates)
    for name in PARTS:
        yield about(f'{name} p50', 'ms', medians[name] * 1000)
        yield about(f'{name}', '1/s', rates[name])
    yield about('life p50', 'ms', least * 1000)
    yield about('lives', '1/s', most)
    if at['clients'] == 1:
        yield Figure(NAME, 'life to floor', '×',
                     percentile(lives.samples['life'], 50) / least, at)
    yield Figure(NAME, 'lives to floor', '×', lives.rate / most, at, Better.MORE)
