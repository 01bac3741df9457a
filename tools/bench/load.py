# SPDX-License-Identifier: Apache-2.0
"""Load from several processes at once, so that the clients' GIL is not the limit."""

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

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
