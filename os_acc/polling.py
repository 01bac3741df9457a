# SPDX-License-Identifier: Apache-2.0
"""Waits for a result: when to check again, and when to give up.

The library and Cyborg's services poll in this way: they check, pause, check again, pause twice
as long, up to a longest pause. The last check is made when the time is up.
"""

import time
from collections.abc import Iterator
from typing import Protocol


class Clock(Protocol):
    """The part of the module ``time`` that is used here."""

    def monotonic(self) -> float:
        """Returns seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Returns after that many seconds."""


def attempts(
    timeout: float,
    pauses: tuple[float, float],
    *,
    is_first_at_once: bool = True,
    clock: Clock | None = None,
) -> Iterator[float]:
    """Yields when it is time to check, with the seconds that are left: 0 for the last check.

    The caller breaks out of the loop when it has the result that it waits for.

    :param timeout: seconds until the last check.
    :param pauses: seconds of the first pause and of the longest.
    :param is_first_at_once: False if the caller has just checked: then the first check follows
        a pause, and with a timeout of 0 there is none.
    :param clock: replaces the module ``time``.

    >>> for left in attempts(60, pauses=(0.01, 0.1)):
    ...     print(f'{left:.0f} seconds are left')
    ...     break
    60 seconds are left
    >>> [left for left in attempts(0, pauses=(0.01, 0.1))]
    [0.0]
    >>> [left for left in attempts(0, pauses=(0.01, 0.1), is_first_at_once=False)]
    []
    """
    clock = time if clock is None else clock
    deadline, (pause, longest) = clock.monotonic() + timeout, pauses
    left = max(float(timeout), 0.0)
    if is_first_at_once:
        yield left
        left = deadline - clock.monotonic()
    while left > 0:
        clock.sleep(min(pause, left))
        pause = min(pause * 2, longest)
        left = deadline - clock.monotonic()
        yield max(left, 0.0)
