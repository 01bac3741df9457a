# SPDX-License-Identifier: Apache-2.0
"""How many guests can use a card while other programs use it."""

import pytest

from cyborg.accelerator import sharing

PARENTS = {number: f'vf{number}' for number in range(6)}


@pytest.mark.parametrize(
    ('held', 'available', 'ceiling', 'total', 'reserved'),
    [
        (0, 8, 8, 8, 0),
        (3, 5, 8, 8, 0),
        (8, 0, 8, 8, 0),
        (0, 0, 8, 8, 8),  # another type uses the card
        (1, 2, 8, 8, 5),
        (3, 5, None, 8, 0),
        (0, 0, None, 0, 0),  # the vendor does not tell how many
        (3, 5, 2, 2, 0),  # there are more than we may offer
    ],
)
def test_one_parent_that_holds_many(held, available, ceiling, total, reserved):
    room = sharing.on_one('card', [f'mdev{n}' for n in range(held)], available, ceiling)
    assert (len(room.places), room.reserved) == (total, reserved)


@pytest.mark.parametrize(
    ('held', 'free', 'full', 'ceiling', 'places', 'reserved'),
    [
        ([], [0, 1, 2, 3, 4, 5], [], 3, [0, 1, 2], 0),
        ([1], [0, 2, 3, 4, 5], [], 3, [0, 1, 2], 0),
        ([0, 1, 2], [], [3, 4, 5], 3, [0, 1, 2], 0),  # full, of ours
        ([], [], [0, 1, 2, 3, 4, 5], 3, [0, 1, 2], 3),  # full, of others'
        ([], [0, 2, 3, 4, 5], [], 3, [0, 2, 3], 0),  # another has number 1
        ([3], [0, 1, 2, 4, 5], [], 3, [0, 1, 3], 0),  # who has a place keeps it
        ([3, 4, 5], [0, 1], [2], 2, [3, 4, 5], 0),  # more than we may offer now
        ([0], [1], [2, 3, 4, 5], None, [0, 1, 2, 3, 4, 5], 4),
        ([], [], [], 3, [], 0),
    ],
)
def test_parents_that_hold_one_each(held, free, full, ceiling, places, reserved):
    occupants = dict.fromkeys(held, 'somebody')
    room = sharing.on_many(PARENTS, occupants, free, full, ceiling)
    assert (list(room.places), room.reserved) == (places, reserved)
    assert room.occupants == occupants
    assert all(room.places[number] == f'vf{number}' for number in places)
