# SPDX-License-Identifier: Apache-2.0
"""Exponential back-off, for everything that is retried at growing intervals."""

#: doublings after which the interval no longer grows; keeps the numbers small
MAX_DOUBLINGS = 16


def pause(failures: int, longest: float, first: float = 1.0) -> float:
    """Return the seconds to wait after so many failures in a row; 0 without a failure."""
    if not failures:
        return 0.0
    return min(first * 2.0 ** min(failures - 1, MAX_DOUBLINGS), longest)
