# SPDX-License-Identifier: Apache-2.0
"""What is measured is a list of figures; their arithmetic is here, and knows of nothing else."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

#: a figure that is worse by more than this share has changed
TOLERANCE = 0.10
#: HTTP requests, each with one RPC call, in a request's life
REQUESTS = 4
PERCENTILES = (50, 95, 99)


class Better(StrEnum):
    LESS = 'less'
    MORE = 'more'
    #: neither: it describes the machine, or the load
    NONE = 'none'


@dataclass(frozen=True)
class Figure:
    """One number: of which measurement, what, under which circumstances."""

    measurement: str
    what: str
    unit: str
    value: float
    at: Mapping[str, int | str] = field(default_factory=dict)
    better: Better = Better.LESS

    @property
    def key(self) -> str:
        """The same in every run."""
        where = ' '.join(f'{name}={value}' for name, value in self.at.items())
        return f'{self.measurement}: {self.what}' + (f' @ {where}' if where else '')

    def to_dict(self) -> dict[str, Any]:
        return {'measurement': self.measurement, 'what': self.what, 'unit': self.unit,
                'value': self.value, 'at': dict(self.at), 'better': self.better}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{**facts, 'better': Better(facts['better'])})


@dataclass(frozen=True)
class Change:
    """A figure that two runs have in common."""

    old: float
    new: Figure

    @property
    def share(self) -> float:
        """By how much of the old value it has grown."""
        if not self.old:
            return 0.0 if not self.new.value else math.inf
        return self.new.value / self.old - 1

    @property
    def is_worse(self) -> bool:
        """Worse by more than noise?"""
        if self.new.better is Better.LESS:
            return self.share > TOLERANCE
        return self.new.better is Better.MORE and self.share < -TOLERANCE


def compare(old: Iterable[Figure], new: Iterable[Figure]) -> list[Change]:
    """The figures of a run that an earlier one has too."""
    before = {figure.key: figure.value for figure in old}
    return [Change(before[figure.key], figure) for figure in new if figure.key in before]


def percentile(samples: Sequence[float], percent: float) -> float:
    """Between the two samples where it lies."""
    ordered = sorted(samples)
    if not ordered:
        raise ValueError('There is no percentile of nothing.')
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def latencies(measurement: str, step: str, samples: Sequence[float],
              at: Mapping[str, int | str]) -> list[Figure]:
    """The percentiles of what took so many seconds each."""
    return [Figure(measurement, f'{step} p{percent}', 'ms', percentile(samples, percent) * 1000,
                   at) for percent in PERCENTILES]


def life_floor(http: float, rpc: float, sql: float) -> float:
    """The seconds in which the parts alone would do a life: each request is HTTP and a call."""
    return REQUESTS * (http + rpc) + sql


def allowed_rate(http: float, rpc: float, sql: float) -> float:
    """Lives a second that the parts allow on this machine.

    Each rate, of requests, calls and lives' SQL, was measured alone with all cores to itself;
    together they have to share them.
    """
    return 1 / (REQUESTS / http + REQUESTS / rpc + 1 / sql)
