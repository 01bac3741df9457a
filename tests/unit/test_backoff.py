# SPDX-License-Identifier: Apache-2.0
"""Intervals between two attempts."""

import pytest

from cyborg import backoff


@pytest.mark.parametrize(
    'failures, seconds', [(0, 0), (1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (10**9, 30)]
)
def test_intervals_double_up_to_the_longest(failures, seconds):
    assert backoff.pause(failures, 30) == seconds


def test_the_first_interval_can_be_chosen():
    assert [backoff.pause(failures, 300, first=5) for failures in (1, 2, 3)] == [5, 10, 20]
