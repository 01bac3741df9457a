# SPDX-License-Identifier: Apache-2.0
"""What must hold, and whether it does in a run."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.figures import Figure

AT_MOST, AT_LEAST = operator.le, operator.ge


@dataclass(frozen=True)
class Target:
    """A bound for figures of a name, wherever they were measured or in some circumstances."""

    sentence: str
    measurement: str
    what: str
    holds: Callable[[float, float], bool]
    bound: float
    at: tuple[tuple[str, Any], ...] = ()

    def concerns(self, figure: Figure) -> bool:
        return ((figure.measurement, figure.what) == (self.measurement, self.what)
                and set(self.at) <= set(figure.at.items()))


@dataclass(frozen=True)
class Verdict:
    """The figure that comes nearest to breaking a target, or breaks it most."""

    target: Target
    figure: Figure

    @property
    def holds(self) -> bool:
        return self.target.holds(self.figure.value, self.target.bound)


TARGETS = (
    Target('a life on an empty database, at one client', 'life', 'life to floor', AT_MOST, 2,
           (('stored', 0), ('clients', 1))),
    Target('a life among many, to one on an empty database', 'life', 'life to empty', AT_MOST,
           1.2),
    Target('lives of 16 clients, to what the floor allows', 'life', 'lives to floor', AT_LEAST,
           0.6, (('clients', 16),)),
    Target('a list of 1,000, more than the bare query', 'lists', 'list more than query', AT_MOST,
           100, (('devices', 1_000),)),
    Target('an item on late pages, to one on early pages', 'lists', 'late to early', AT_MOST,
           1.2),
    *(Target(f'an unchanged host: {what}', 'report', what, AT_MOST, bound,
             (('round', 'unchanged'),))
      for what, bound in (('statements', 1), ('RPC calls', 0), ('RPC casts', 1),
                          ('Placement calls', 0))),
    Target('the first report of a large host: statements', 'report', 'statements', AT_MOST, 40,
           (('host', 'large'), ('round', 'first'))),
    Target('from the slot to Placement', 'hotplug', 'plug median', AT_MOST, 1),
    Target('a heartbeat: statements', 'fleet', 'statements a heartbeat', AT_MOST, 1.1,
           (('hosts', 10_000),)),
    Target('10,000 hosts: conductor', 'fleet', 'CPU conductor', AT_MOST, 80,
           (('hosts', 10_000),)),
    Target('10,000 hosts: not heard in time', 'fleet', 'hosts not heard in time', AT_MOST, 0,
           (('hosts', 10_000),)),
)


def judge(figures: Sequence[Figure]) -> Iterator[Verdict]:
    """Every target that a run has something to say about."""
    for target in TARGETS:
        concerned = [figure for figure in figures if target.concerns(figure)]
        if concerned:
            worst = max if target.holds is AT_MOST else min
            yield Verdict(target, worst(concerned, key=lambda figure: figure.value))
