# SPDX-License-Identifier: Apache-2.0
"""Generates load from several processes, so that the GIL of the clients is not the limit."""

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tools.bench.children import Child
from tools.process_usage import cpu_by_name

PROCESSES = 4
#: seconds for the first round of every client, which is not measured
WARM_UP = 0.5

Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Outcome:
    """The seconds of each step and repetition, and the repetitions per second."""

    samples: Samples
    rate: float


class Series:
    """Several rounds of the same load, and the CPU time of processes during them."""

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
        """Add a round; ``extra`` is the number of repetitions in the warm-up."""
        self._outcomes.append(outcome)
        self._extra += extra

    @property
    def samples(self) -> Samples:
        return merge(each.samples for each in self._outcomes)

    @property
    def rate(self) -> float:
        return sum(each.rate for each in self._outcomes) / len(self._outcomes)

    def cpu(self, step: str) -> dict[str, float]:
        """Return the CPU seconds per repetition of a step, by process."""
        count = len(self.samples[step]) + self._extra
        return {name: seconds / count for name, seconds in self._spent.items()}


class Load:
    """The client processes, which all measurements share."""

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

    def run(
        self,
        scenario: str,
        address: tuple[str, int],
        headers: Mapping[str, str],
        clients: int,
        seconds: float,
        **facts: Any,
    ) -> Outcome:
        """Repeat a scenario for so many seconds."""
        start, busy, first = time.time() + WARM_UP, [], 0
        for child, share in zip(self._children, shares(clients, len(self._children)), strict=True):
            if share:
                child.send(
                    'run',
                    scenario=scenario,
                    address=address,
                    headers=headers,
                    clients=share,
                    first=first,
                    start=start,
                    seconds=seconds,
                    **facts,
                )
                busy.append(child)
                first += share
        results = [child.receive() for child in busy]
        return Outcome(
            merge(result['samples'] for result in results),
            sum(result['rate'] for result in results),
        )


def shares(count: int, among: int) -> list[int]:
    """Divide a number into parts that differ by at most 1."""
    return [count // among + (number < count % among) for number in range(among)]


def merge(parts: Iterable[Samples]) -> Samples:
    """Merge the samples of each step."""
    merged: Samples = {}
    for part in parts:
        for step, samples in part.items():
            merged.setdefault(step, []).extend(samples)
    return merged
