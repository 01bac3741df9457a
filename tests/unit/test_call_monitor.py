# SPDX-License-Identifier: Apache-2.0
import queue
import threading
import time

import pytest

from cyborg.call_monitor import Monitor

PATIENCE = 30


class Incoming:
    """A message whose caller waits for signs of life."""

    def __init__(self, error=None):
        self.signs = queue.SimpleQueue()
        self._error = error

    def heartbeat(self):
        self.signs.put(time.monotonic())
        if self._error:
            raise self._error


class Hanging(Incoming):
    """A message whose caller cannot be reached."""

    def __init__(self):
        super().__init__()
        self.reached = threading.Event()

    def heartbeat(self):
        super().heartbeat()
        self.reached.wait()


@pytest.fixture
def monitor():
    return Monitor()


def threads(name):
    return [each for each in threading.enumerate() if each.name == name]


def eventually(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_long_call_sends_signs_of_life_until_it_ends(monitor):
    incoming, begin = Incoming(), time.monotonic()
    call = monitor.begin(incoming, 0.05)
    times = [incoming.signs.get(timeout=PATIENCE) for _ in range(3)]
    monitor.end(call)
    assert [each - begin >= 0.05 * number for number, each in enumerate(times, 1)] == [True] * 3
    # then none follows
    while not incoming.signs.empty():
        incoming.signs.get()
    time.sleep(0.2)
    assert incoming.signs.empty()


def test_a_short_call_sends_none(monitor):
    incoming = Incoming()
    monitor.end(monitor.begin(incoming, 0.05))
    time.sleep(0.2)
    assert incoming.signs.empty()


def test_calls_that_end_at_once_do_not_start_a_thread_each(monitor):
    before = set(threads('call-monitor'))
    with monitor._changed:  # the thread cannot run before the call has ended
        monitor.end(monitor.begin(Incoming(), 60))
    [thread] = set(threads('call-monitor')) - before
    thread.join(0.5)
    assert thread.is_alive()
    monitor.end(monitor.begin(Incoming(), 60))
    assert set(threads('call-monitor')) - before == {thread}


def test_a_call_whose_sign_is_due_earlier_does_not_wait_for_others(monitor):
    slow, quick = Incoming(), Incoming()
    calls = [monitor.begin(slow, 3600), monitor.begin(quick, 0.05)]
    quick.signs.get(timeout=PATIENCE)
    assert slow.signs.empty()
    for call in calls:
        monitor.end(call)


def test_a_caller_who_cannot_be_reached_delays_nobody(monitor):
    hanging, other = Hanging(), Incoming()
    calls = [monitor.begin(hanging, 0.05), monitor.begin(other, 0.05)]
    hanging.signs.get(timeout=PATIENCE)
    for _ in range(3):
        other.signs.get(timeout=PATIENCE)
    hanging.reached.set()
    for call in calls:
        monitor.end(call)


def test_a_caller_who_is_gone_gets_no_second_sign(monitor):
    incoming = Incoming(OSError('gone'))
    call = monitor.begin(incoming, 0.05)
    incoming.signs.get(timeout=PATIENCE)
    time.sleep(0.2)
    assert incoming.signs.empty()
    monitor.end(call)


def test_all_calls_share_a_thread_which_ends_with_them(monitor):
    before = len(threads('call-monitor'))
    calls = [monitor.begin(Incoming(), 0.2) for _ in range(20)]
    assert len(threads('call-monitor')) == before + 1
    for call in calls:
        monitor.end(call)
    eventually(lambda: len(threads('call-monitor')) <= before)
    # and the next call is monitored as well
    incoming = Incoming()
    call = monitor.begin(incoming, 0.05)
    incoming.signs.get(timeout=PATIENCE)
    monitor.end(call)


def test_calls_are_monitored_after_a_thread_could_not_be_started(monitor, monkeypatch):
    start = threading.Thread.start

    def refuse(self):
        if self.name == 'signs-of-life':
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading, 'excepthook', lambda _: None)
    monkeypatch.setattr(threading.Thread, 'start', refuse)
    first = Incoming()
    call = monitor.begin(first, 0.01)
    eventually(lambda: monitor._wakes_at is None)
    monkeypatch.setattr(threading.Thread, 'start', start)
    second = Incoming()
    another = monitor.begin(second, 0.01)
    second.signs.get(timeout=PATIENCE)
    monitor.end(another)
    monitor.end(call)
