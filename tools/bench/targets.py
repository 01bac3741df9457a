# SPDX-License-Identifier: Apache-2.0
"""The targets of Cyborg, and whether a run meets them."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.figures import Figure

AT_MOST, AT_LEAST = operator.le, operator.ge


@dataclass(frozen=True)
class Target:
    """A bound for the figures of a name, under all or some conditions."""

    sentence: str
    measurement: str
    what: str
    holds: Callable[[float, float], bool]
    bound: float
    at: tuple[tuple[str, Any], ...] = ()

    def concerns(self, figure: Figure) -> bool:
        return (figure.measurement, figure.what) == (self.measurement, self.what) and set(
            self.at
        ) <= set(figure.at.items())


@dataclass(frozen=True)
class Verdict:
    """The figure that is nearest to missing a target, or misses it most."""

    target: Target
    figure: Figure

    @property
    def holds(self) -> bool:
        return self.target.holds(self.figure.value, self.target.bound)


TARGETS = (
    Target(
        'a life on an empty database, at one client',
        'life',
        'life to floor',
        AT_MOST,
        2,
        (('stored', 0), ('clients', 1)),
    ),
    Target('a life among many, to one on an empty database', 'life', 'life to empty', AT_MOST, 1.2),
    Target(
        'lives of 16 clients, to what the floor allows',
        'life',
        'lives to floor',
        AT_LEAST,
        0.6,
        (('clients', 16),),
    ),
    Target(
        'a list of 1,000, more than the bare query',
        'lists',
        'list more than query',
        AT_MOST,
        100,
        (('devices', 1_000),),
    ),
    Target('an item on late pages, to one on early pages', 'lists', 'late to early', AT_MOST, 1.2),
    Target(
        'the availability of a profile on 10,000 hosts, without Placement',
        'availability',
        'CPU',
        AT_MOST,
        1_000,
        (('hosts', 10_000),),
    ),
    Target(
        'the availability of a profile on 10,000 hosts, with Placement',
        'availability',
        'p50',
        AT_MOST,
        1_000,
        (('hosts', 10_000),),
    ),
    *(
        Target(
            f'the memory of the {service} after the availability of a profile',
            'availability',
            'memory of the largest process',
            AT_MOST,
            bound,
            (('service', service),),
        )
        for service, bound in (('api', 100), ('conductor', 110))
    ),
    *(
        Target(
            f'the memory of the {service}, each process',
            'start',
            'memory of the largest process',
            AT_MOST,
            bound,
            (('service', service),),
        )
        for service, bound in (('api', 100), ('conductor', 110), ('agent', 100))
    ),
    *(
        Target(
            f'an unchanged host: {what}', 'report', what, AT_MOST, bound, (('round', 'unchanged'),)
        )
        for what, bound in (
            ('statements', 1),
            ('RPC calls', 0),
            ('RPC casts', 1),
            ('Placement calls', 0),
        )
    ),
    Target(
        'the first report of a large host: statements',
        'report',
        'statements',
        AT_MOST,
        40,
        (('host', 'large'), ('round', 'first')),
    ),
    Target('from the slot to Placement', 'hotplug', 'plug median', AT_MOST, 1),
    Target(
        'a heartbeat: statements',
        'fleet',
        'statements a heartbeat',
        AT_MOST,
        1.1,
        (('hosts', 10_000),),
    ),
    Target('10,000 hosts: conductor', 'fleet', 'CPU conductor', AT_MOST, 80, (('hosts', 10_000),)),
    Target(
        '10,000 hosts: not heard in time',
        'fleet',
        'hosts not heard in time',
        AT_MOST,
        0,
        (('hosts', 10_000),),
    ),
)


def judge(figures: Sequence[Figure]) -> Iterator[Verdict]:
    """Yield a verdict for each target that the run has measured."""
    for target in TARGETS:
        concerned = [figure for figure in figures if target.concerns(figure)]
        if concerned:
            worst = max if target.holds is AT_MOST else min
            yield Verdict(target, worst(concerned, key=lambda figure: figure.value))
