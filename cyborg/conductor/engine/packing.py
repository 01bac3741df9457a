# SPDX-License-Identifier: Apache-2.0
"""Decides how often several groups fit together on the providers of one host.

Each group takes its amount from one provider; several groups may share a provider.
"""

from collections import defaultdict
from typing import NamedTuple

#: how many places a search tries before it gives up
MOST_STEPS = 2000

Rooms = tuple[int, ...]


class Group(NamedTuple):
    """An amount, and the indexes of the providers that may give it."""

    amount: int
    providers: tuple[int, ...]


def pack(rooms: Rooms, groups: tuple[Group, ...]) -> tuple[int, bool]:
    """Returns how often all groups fit at most, and whether they may fit less often."""
    most = _most(rooms, groups)
    if not most:
        return 0, False
    # groups that are hard to place come first
    ordered = sorted(groups, key=lambda group: (len(group.providers), -group.amount))
    least = _greedy(rooms, ordered, most)
    if least:
        return most, least < most
    found = _search(list(rooms), ordered, [MOST_STEPS])
    if found is False:
        return 0, False
    return most, not (found and most == 1)


def _most(rooms: Rooms, groups: tuple[Group, ...]) -> int:
    """Returns an upper bound: the least number of times that each group fits alone, and that
    groups with the same providers fit into the units that they share."""
    alone = [sum(rooms[index] // group.amount for index in group.providers) for group in groups]
    shared: dict[frozenset[int], int] = defaultdict(int)
    for group in groups:
        shared[frozenset(group.providers)] += group.amount
    together = []
    for providers in shared:
        # and groups that can use no other providers than these
        amount = sum(each for others, each in shared.items() if others <= providers)
        together.append(sum(rooms[index] for index in providers) // amount)
    return min(*alone, *together)


def _greedy(rooms: Rooms, groups: list[Group], most: int) -> int:
    """Returns how often all groups can be placed if each takes the tightest provider."""
    left, times = list(rooms), 0
    while times < most:
        for group in groups:
            fitting = [index for index in group.providers if left[index] >= group.amount]
            if not fitting:
                return times
            left[min(fitting, key=left.__getitem__)] -= group.amount
        times += 1
    return times


def _search(left: list[int], groups: list[Group], steps: list[int]) -> bool | None:
    """Returns whether all groups can be placed once; None if the search takes too long."""
    if not groups:
        return True
    first, *rest = groups
    is_unknown = False
    for index in first.providers:
        if left[index] < first.amount:
            continue
        if not steps[0]:
            return None
        steps[0] -= 1
        left[index] -= first.amount
        found = _search(left, rest, steps)
        left[index] += first.amount
        if found:
            return True
        is_unknown = is_unknown or found is None
    return None if is_unknown else False
