# SPDX-License-Identifier: Apache-2.0
"""How often groups fit together on the providers of a host, compared with trying everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cyborg.conductor.engine import packing
from cyborg.conductor.engine.packing import Group, pack

ROOMS = st.lists(st.integers(0, 4), min_size=1, max_size=3)


@st.composite
def hosts(draw):
    rooms = draw(ROOMS)
    chosen = st.sets(st.sampled_from(range(len(rooms))), min_size=1)
    groups = draw(st.lists(st.tuples(st.integers(1, 3), chosen), min_size=1, max_size=3))
    return tuple(rooms), tuple(Group(amount, tuple(sorted(each))) for amount, each in groups)


def can_place(rooms, groups):
    """Whether all groups can be placed, found by trying every provider for each."""
    if not groups:
        return True
    first, *rest = groups
    return any(
        rooms[index] >= first.amount
        and can_place(
            [room - first.amount * (place == index) for place, room in enumerate(rooms)], rest
        )
        for index in first.providers
    )


def exact(rooms, groups):
    times = 0
    while can_place(list(rooms), list(groups) * (times + 1)):
        times += 1
    return times


@given(hosts())
def test_the_number_is_exact_unless_it_is_said_to_be_an_upper_bound(host):
    rooms, groups = host
    most, may_be_fewer = pack(rooms, groups)
    found = exact(rooms, groups)
    assert found <= most
    assert may_be_fewer or found == most
    # that nothing fits is never said of what fits, nor the other way round
    assert bool(most) == bool(found)


@pytest.mark.parametrize(
    'rooms, groups, times',
    [
        ((4,), [Group(1, (0,))], 4),
        ((1, 1), [Group(2, (0, 1))], 0),
        ((2, 2), [Group(1, (0,)), Group(1, (0,))], 1),
        ((3,), [Group(2, (0,)), Group(2, (0,))], 0),
        ((1, 1), [Group(1, (0, 1)), Group(1, (0,))], 1),
    ],
    ids=['one', 'too small', 'two of one card', 'not together', 'the choosy one comes first'],
)
def test_some_hosts(rooms, groups, times):
    assert pack(rooms, tuple(groups)) == (times, False)


def test_a_search_that_takes_too_long_gives_an_upper_bound(monkeypatch):
    # given groups that fit only if the largest providers are not taken first
    rooms, groups = (4, 6), (Group(3, (0, 1)), Group(2, (0, 1)), Group(3, (0, 1)), Group(2, (0, 1)))
    assert exact(rooms, groups) == 1
    # when the search may not try anything
    monkeypatch.setattr(packing, 'MOST_STEPS', 0)
    monkeypatch.setattr(packing, '_greedy', lambda *_: 0)
    # then the number is a bound
    assert pack(rooms, groups) == (1, True)
