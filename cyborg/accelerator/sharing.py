# SPDX-License-Identifier: Apache-2.0
"""How many guests can share a card, told truthfully while others use it too."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from cyborg.accelerator.sysfs import Node

N = TypeVar('N', bound=Node)


@dataclasses.dataclass(frozen=True)
class Room(Generic[N]):
    """Where the parts of a card have their places, or could have them."""

    #: parents by number; the same number is the same place at every look
    places: Mapping[int, N]
    #: how many of these cannot be had now: parts of other sizes use what they need
    reserved: int = 0
    #: what sits at a place, where each has its own
    occupants: Mapping[int, str] = dataclasses.field(default_factory=dict)
    #: what sits on the card where places are not told apart, whoever made it
    instances: tuple[str, ...] = ()


def on_one(parent: N, instances: Sequence[str], available: int,
           ceiling: int | None) -> Room[N]:
    """On a parent that holds many: up to ``ceiling``, or else as many as fit now."""
    held = len(instances)
    total = held + available if ceiling is None else ceiling
    return Room(dict.fromkeys(range(total), parent), max(0, total - held - available),
                instances=tuple(instances))


def on_many(parents: Mapping[int, N], occupants: Mapping[int, str], free: list[int],
            full: list[int], ceiling: int | None) -> Room[N]:
    """On parents that hold one each, ``ceiling`` of them at a time.

    Those with ``occupants`` hold one, ``free`` could now, ``full`` not now but some other time.
    Who has a place keeps it; the first of the others make up for the rest.
    """
    limit = len(parents) if ceiling is None else ceiling
    others = sorted(free + full)[:max(0, limit - len(occupants))]
    to_be_had = len(occupants) + min(len(free), len(others))
    places = sorted([*occupants, *others])
    return Room({number: parents[number] for number in places}, len(places) - to_be_had,
                occupants)
