# SPDX-License-Identifier: Apache-2.0
"""Which time a report of usage counts."""

import datetime

import pytest

from cyborg import errors
from cyborg.conductor.engine import usage

NOW = datetime.datetime(2026, 3, 31, 12, tzinfo=datetime.UTC)
KEPT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def day(month, number):
    return datetime.datetime(2026, month, number, tzinfo=datetime.UTC)


def text(month, number):
    return day(month, number).isoformat()


@pytest.mark.parametrize(
    ('start', 'end', 'counted'),
    [
        (None, None, (day(3, 3) + datetime.timedelta(hours=12), NOW)),
        (None, text(3, 1), (day(2, 1), day(3, 1))),
        (text(3, 1), None, (day(3, 1), NOW)),
        (text(3, 1), text(4, 1), (day(3, 1), NOW)),
        (text(2, 1), text(3, 1), (day(2, 1), day(3, 1))),
        (text(2, 1), text(2, 1), (day(2, 1), day(2, 1))),
    ],
    ids=['the last weeks', 'no start', 'no end', 'end in the future', 'both', 'no length'],
)
def test_what_is_asked_for_is_counted(start, end, counted):
    assert usage.interval(start, end, NOW, KEPT) == counted


@pytest.mark.parametrize('start', ['0001-01-01T00:00:00+00:00', '2025-12-31T00:00:00+00:00'])
def test_time_before_the_history_is_not_counted(start):
    assert usage.interval(start, text(2, 1), NOW, KEPT) == (KEPT, day(2, 1))


@pytest.mark.parametrize('start', [None, '0001-01-01T00:00:00+00:00'])
@pytest.mark.parametrize('end', ['0001-01-02T00:00:00+00:00', '2025-12-31T00:00:00+00:00'])
def test_an_interval_before_the_history_has_no_length(start, end):
    counted = usage.interval(start, end, NOW, KEPT)
    assert counted.start == counted.end == datetime.datetime.fromisoformat(end)


def test_an_end_before_the_start_is_refused():
    with pytest.raises(errors.BadRequest, match='must not be before the start, 2026-03-01'):
        usage.interval(text(3, 1), text(2, 28), NOW, KEPT)


def test_a_start_in_the_future_is_refused_with_the_time():
    with pytest.raises(errors.BadRequest, match='it is 2026-03-31T12:00:00'):
        usage.interval(text(4, 1), None, NOW, KEPT)


def test_steps_that_a_shorter_history_deleted_stay_deleted():
    assert usage.complete_since(None, KEPT) == KEPT
    assert usage.complete_since(day(3, 1).isoformat(), KEPT) == day(3, 1)
    assert usage.complete_since(day(3, 1).isoformat(), day(3, 2)) == day(3, 2)
