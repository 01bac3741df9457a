# SPDX-License-Identifier: Apache-2.0
"""When heartbeats are sent, also while no message can be sent."""

import oslo_messaging as messaging
import pytest

from cyborg import errors
from cyborg.agent import heartbeat


class Clock:
    """Replaces the event for which the thread waits between two heartbeats."""

    def __init__(self, beats):
        self.pauses = []
        self._beats = beats

    def wait(self, seconds):
        self.pauses.append(seconds)
        return len(self.pauses) > self._beats


@pytest.fixture
def pauses():
    def of(interval, outcomes):
        """Return the pauses before each of these heartbeats, and after the last."""
        left = list(outcomes)

        def beat():
            if not left.pop(0):
                raise messaging.MessageDeliveryFailure('The broker is down.')

        sender = heartbeat.Heartbeat('heartbeat', interval, beat)
        sender._stopping = clock = Clock(len(outcomes))
        sender._run()
        return clock.pauses

    return of


def test_heartbeats_are_sent_at_a_fixed_interval(pauses):
    assert pauses(60, [True, True]) == [60, 60, 60]


def test_failed_heartbeats_are_repeated_at_growing_intervals(pauses):
    assert pauses(60, [False] * 6) == [60, 1, 2, 4, 8, 8, 8]


def test_after_a_success_the_interval_is_the_usual_one_again(pauses):
    assert pauses(60, [False, False, True, False]) == [60, 1, 2, 60, 1]


def test_a_failed_heartbeat_is_not_delayed_beyond_the_interval(pauses):
    assert pauses(2, [False] * 4) == [2, 1, 2, 2, 2]


@pytest.mark.parametrize('error', [errors.IncompatibleRelease(why='it is old.'), OSError('fork')])
def test_no_error_ends_the_heartbeats(error):
    sent = []

    def beat():
        sent.append(error)
        raise error

    sender = heartbeat.Heartbeat('heartbeat', 60, beat)
    sender._stopping = Clock(2)
    sender._run()
    assert sent == [error, error]
