# SPDX-License-Identifier: Apache-2.0
"""Intervals between two checks of a caller that polls."""

import pytest

from os_acc.polling import attempts
from tests.fixtures.clock import Clock


def test_pauses_double_up_to_the_longest_and_the_last_check_is_at_the_end():
    clock = Clock()
    left = list(attempts(10, (1, 4), clock=clock))
    assert left == [10, 9, 7, 3, 0]
    assert clock.pauses == [1, 2, 4, 3]


def test_a_caller_that_has_just_checked_pauses_first():
    clock = Clock()
    assert list(attempts(3, (1, 4), is_first_at_once=False, clock=clock)) == [2, 0]


@pytest.mark.parametrize('timeout', [0, -1])
def test_without_time_there_is_one_check_at_most(timeout):
    clock = Clock()
    assert list(attempts(timeout, (1, 4), clock=clock)) == [0]
    assert list(attempts(timeout, (1, 4), is_first_at_once=False, clock=clock)) == []
    assert clock.pauses == []


def test_a_look_that_takes_long_is_followed_by_no_other():
    clock = Clock()
    seen = []
    for left in attempts(3, (1, 4), clock=clock):
        seen.append(left)
        clock.now += 5
    assert seen == [3]
