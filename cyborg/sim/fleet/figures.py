# SPDX-License-Identifier: Apache-2.0
"""What a part of a fleet did in an interval, and how it is told."""

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

#: what is counted, and said for it
COUNTS = {
    'sent': 'heartbeats sent', 'missed': 'periods missed', 'looks': 'reports',
    'woken': 'times woken', 'failed': 'failures', 'asked': 'times asked',
    'behind': 'answers behind', 'binds': 'binds', 'cards': 'cards changed'}
#: what takes time, and said for it
TIMES = {'send': 'send', 'report': 'report', 'ask': 'ask', 'bind': 'bind to delete'}


class Figures:
    """Counts and times; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._times: dict[str, list[float]] = {}

    def count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def took(self, name: str, seconds: float) -> None:
        with self._lock:
            self._times.setdefault(name, []).append(seconds)

    def take(self) -> dict[str, Any]:
        """All since the last time."""
        with self._lock:
            taken = {'counts': dict(self._counts), 'times': self._times}
            self._counts, self._times = Counter(), {}
        return taken


def together(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What all processes did: counts, and percentiles in milliseconds."""
    counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    times: dict[str, list[float]] = {}
    for part in parts:
        counts.update(part['counts'])
        for name, taken in part['times'].items():
            times.setdefault(name, []).extend(taken)
    return {'counts': dict(counts), 'times': {
        name: {f'p{percent}': nearest(taken, percent) * 1000 for percent in (50, 99)}
        for name, taken in times.items()}}


def nearest(samples: Sequence[float], percent: int) -> float:
    """The sample below or at which so many percent are."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def sentence(figures: dict[str, Any]) -> str:
    """One line for people."""
    said = [f'{figures["counts"][name]} {words}' for name, words in COUNTS.items()
            if figures['counts'][name] or name in ('sent', 'missed')]
    said += [f'{words} p50 {figures["times"][name]["p50"]:.1f} p99 '
             f'{figures["times"][name]["p99"]:.1f} ms'
             for name, words in TIMES.items() if name in figures['times']]
    if 'conductor' in figures:
        said.append(f'conductor {figures["conductor"]:.0%} of a core')
    return ', '.join(said)
