# SPDX-License-Identifier: Apache-2.0
"""Load from several processes at once, so that the clients' GIL is not the limit."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cyborg.sim.usage import cpu_by_name
from tools.bench.children import Child

PROCESSES = 4
#: seconds for the first, uncounted, round of every client
WARM_UP = 0.5

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Outcome:
    """How long each step took each time, in seconds, and how many a second there were."""

    samples: Samples
    rate: float


class Series:
    """Several rounds of the same, put together, and what processes spent on them."""

    def __init__(self, processes: Mapping[str, Sequence[int]]) -> None:
        self._processes = processes
        self._outcomes: list[Outcome] = []
        self._extra = 0
        self._spent = dict.fromkeys(processes, 0.0)

    def __enter__(self) -> Self:
        self._before = cpu_by_name(self._processes)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for name, seconds in cpu_by_name(self._processes).items():
            self._spent[name] += seconds - self._before[name]

    def add(self, outcome: Outcome, extra: int) -> None:
        """Add a round; ``extra``: how often it was done beyond what was noted, to warm up."""
        self._outcomes.append(outcome)
        self._extra += extra

    @property
    def samples(self) -> Samples:
        return merge(each.samples for each in self._outcomes)

    @property
    def rate(self) -> float:
        return sum(each.rate for each in self._outcomes) / len(self._outcomes)

    def cpu(self, step: str) -> dict[str, float]:
        """Seconds on a core for each time that this step was done, by process."""
        count = len(self.samples[step]) + self._extra
        return {name: seconds / count for name, seconds in self._spent.items()}


class Load:
    """The client processes, kept from one measurement to the next."""

    def __init__(self, processes: int = PROCESSES) -> None:
        self._children = [Child('tools.bench.client') for _ in range(processes)]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for child in self._children:
                stack.enter_context(child)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def run(self, scenario: str, address: tuple[str, int], headers: Mapping[str, str],
            clients: int, seconds: float, **facts: Any) -> Outcome:
        """Repeat a scenario for a while."""
        start, busy, first = time.time() + WARM_UP, [], 0
        for child, share in zip(self._children, shares(clients, len(self._children)),
                                strict=True):
            if share:
                child.send('run', scenario=scenario, address=address, headers=headers,
                           clients=share, first=first, start=start, seconds=seconds, **facts)
                busy.append(child)
                first += share
        answers = [child.answer() for child in busy]
        return Outcome(merge(answer['samples'] for answer in answers),
                       sum(answer['rate'] for answer in answers))


def shares(count: int, among: int) -> list[int]:
    """A number in as equal parts as can be."""
    return [count // among + (number < count % among) for number in range(among)]


def merge(parts: Iterable[Samples]) -> Samples:
    """All samples of each step."""
    merged: Samples = {}
    for part in parts:
        for step, samples in part.items():
            merged.setdefault(step, []).extend(samples)
    return merged
