# SPDX-License-Identifier: Apache-2.0
"""Figures, the results of measurements, and their arithmetic."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

#: a figure is worse if it has changed by more than this share
TOLERANCE = 0.10
#: HTTP requests, each with one RPC call, in the life of an accelerator request
REQUESTS = 4
PERCENTILES = (50, 95, 99)


class Better(StrEnum):
    LESS = 'less'
    MORE = 'more'
    #: neither, because it describes the machine or the load
    NONE = 'none'


@dataclass(frozen=True)
class Figure:
    """A measured value: of which measurement, of what, and under which conditions."""

    measurement: str
    what: str
    unit: str
    value: float
    at: Mapping[str, int | str] = field(default_factory=dict)
    better: Better = Better.LESS

    @property
    def key(self) -> str:
        """The identity of a figure, the same in every run."""
        where = ' '.join(f'{name}={value}' for name, value in self.at.items())
        return f'{self.measurement}: {self.what}' + (f' @ {where}' if where else '')

    def to_dict(self) -> dict[str, Any]:
        return {
            'measurement': self.measurement,
            'what': self.what,
            'unit': self.unit,
            'value': self.value,
            'at': dict(self.at),
            'better': self.better,
        }

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
        """The growth as a share of the old value."""
        if not self.old:
            return 0.0 if not self.new.value else math.inf
        return self.new.value / self.old - 1

    @property
    def is_worse(self) -> bool:
        """Whether it is worse by more than the tolerance."""
        if self.new.better is Better.LESS:
            return self.share > TOLERANCE
        return self.new.better is Better.MORE and self.share < -TOLERANCE


def compare(old: Iterable[Figure], new: Iterable[Figure]) -> list[Change]:
    """Return the changes of the figures that both runs have."""
    before = {figure.key: figure.value for figure in old}
    return [Change(before[figure.key], figure) for figure in new if figure.key in before]


def percentile(samples: Sequence[float], percent: float) -> float:
    """Return the percentile by linear interpolation between two samples."""
    ordered = sorted(samples)
    if not ordered:
        raise ValueError('A percentile needs at least one sample.')
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def latencies(
    measurement: str, step: str, samples: Sequence[float], at: Mapping[str, int | str]
) -> list[Figure]:
    """Return the percentiles of samples in seconds as figures in milliseconds."""
    return [
        Figure(measurement, f'{step} p{percent}', 'ms', percentile(samples, percent) * 1000, at)
        for percent in PERCENTILES
    ]


def life_floor(http: float, rpc: float, sql: float) -> float:
    """Return the seconds of a life in the components alone: each request is HTTP and a call."""
    return REQUESTS * (http + rpc) + sql


def allowed_rate(http: float, rpc: float, sql: float) -> float:
    """Return the lives per second that the components allow on this machine.

    Each rate, of requests, of calls and of the SQL of lives, was measured alone with all cores;
    together they share the cores.
    """
    return 1 / (REQUESTS / http + REQUESTS / rpc + 1 / sql)
