# SPDX-License-Identifier: Apache-2.0
"""How many guests can share a card, also while other programs use the card."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from cyborg.accelerator.sysfs import Node

N = TypeVar('N', bound=Node)


@dataclasses.dataclass(frozen=True)
class Room(Generic[N]):
    """The places of a card where parts of it are, or could be made."""

    #: the parents of the parts, by number; a number is that of the same place in every discovery
    places: Mapping[int, N]
    #: the number of places that cannot be used now, because parts of other sizes use the card
    reserved: int = 0
    #: the part at each place, if every part has a place of its own
    occupants: Mapping[int, str] = dataclasses.field(default_factory=dict)
    #: all parts of the card, if parts have no places of their own, whoever made them
    instances: tuple[str, ...] = ()


def on_one(parent: N, instances: Sequence[str], available: int, ceiling: int | None) -> Room[N]:
    """Returns the room on one parent that holds many parts: ``ceiling`` of them, or as many as
    fit now if that is None."""
    held = len(instances)
    total = held + available if ceiling is None else ceiling
    return Room(
        dict.fromkeys(range(total), parent),
        max(0, total - held - available),
        instances=tuple(instances),
    )


def on_many(
    parents: Mapping[int, N],
    occupants: Mapping[int, str],
    free: list[int],
    full: list[int],
    ceiling: int | None,
) -> Room[N]:
    """Returns the room on parents that hold one part each, ``ceiling`` of them at a time.

    The parents in ``occupants`` hold a part. Those in ``free`` could hold one now, and those in
    ``full`` could when others leave the card. Parents with a part keep their place; the first of
    the other parents get the rest of the places.
    """
    limit = len(parents) if ceiling is None else ceiling
    others = sorted(free + full)[: max(0, limit - len(occupants))]
    to_be_had = len(occupants) + min(len(free), len(others))
    places = sorted([*occupants, *others])
    return Room({number: parents[number] for number in places}, len(places) - to_be_had, occupants)
