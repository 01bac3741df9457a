# SPDX-License-Identifier: Apache-2.0
"""Statistics of one interval: counts and times."""

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

#: the counts, and their names in the output
COUNTS = {
    'sent': 'heartbeats sent',
    'missed': 'periods missed',
    'looks': 'reports',
    'woken': 'times woken',
    'failed': 'failures',
    'asked': 'queries',
    'behind': 'stale replies',
    'binds': 'binds',
    'cards': 'cards changed',
}
#: the operations that are timed, and their names in the output
TIMES = {'send': 'send', 'report': 'report', 'ask': 'query', 'bind': 'bind to delete'}


class IntervalStatistics:
    """Collects counts and times from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._times: dict[str, list[float]] = {}

    def count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def add_time(self, name: str, seconds: float) -> None:
        with self._lock:
            self._times.setdefault(name, []).append(seconds)

    def take(self) -> dict[str, Any]:
        """Return and reset what was collected since the last call."""
        with self._lock:
            taken = {'counts': dict(self._counts), 'times': self._times}
            self._counts, self._times = Counter(), {}
        return taken


def combine(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Combine the statistics of all processes: counts, and percentiles in milliseconds."""
    counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    times: dict[str, list[float]] = {}
    for part in parts:
        counts.update(part['counts'])
        for name, taken in part['times'].items():
            times.setdefault(name, []).extend(taken)
    return {
        'counts': dict(counts),
        'times': {
            name: {f'p{percent}': nearest_rank(taken, percent) * 1000 for percent in (50, 99)}
            for name, taken in times.items()
        },
    }


def nearest_rank(samples: Sequence[float], percent: int) -> float:
    """Return the percentile by the nearest-rank method."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def render(statistics: dict[str, Any]) -> str:
    """Render the statistics as one line."""
    phrases = [
        f'{statistics["counts"][name]} {words}'
        for name, words in COUNTS.items()
        if statistics['counts'][name] or name in ('sent', 'missed')
    ]
    phrases += [
        f'{words} p50 {statistics["times"][name]["p50"]:.1f} p99 '
        f'{statistics["times"][name]["p99"]:.1f} ms'
        for name, words in TIMES.items()
        if name in statistics['times']
    ]
    if 'conductor' in statistics:
        phrases.append(f'conductor {statistics["conductor"]:.0%} of a core')
    return ', '.join(phrases)
