# SPDX-License-Identifier: Apache-2.0
"""Jobs of one card run one after another, and cards side by side."""

import threading

import pytest

from cyborg.agent.pool import Threads
from tests.fixtures.cloud import PATIENCE, eventually


@pytest.fixture
def threads():
    made = Threads(2)
    yield made
    made.stop()


def test_a_card_that_hangs_leaves_the_other_threads_to_its_neighbours(threads):
    gate, done = threading.Event(), threading.Event()
    for _ in range(8):
        threads.submit('hanging', 0.0, gate.wait, PATIENCE)
    threads.submit('healthy', 0.0, done.set)
    assert done.wait(PATIENCE)
    gate.set()


def test_jobs_of_a_card_run_one_after_another_in_their_order(threads):
    running, seen, last = set(), [], threading.Event()

    def job(number):
        assert not running
        running.add(number)
        seen.append(number)
        running.remove(number)

    for number in range(50):
        threads.submit('card', 0.0, job, number)
    threads.submit('card', 0.0, last.set)
    assert last.wait(PATIENCE)
    assert seen == list(range(50))


def test_a_job_that_waits_keeps_nobody_of_its_card_waiting(threads):
    seen, last = [], threading.Event()
    threads.submit('card', 0.2, lambda: (seen.append('late'), last.set()))
    threads.submit('card', 0.0, seen.append, 'soon')
    assert last.wait(PATIENCE)
    assert seen == ['soon', 'late']


def test_a_job_that_raises_is_logged_and_the_next_one_runs(threads, caplog):
    done = threading.Event()
    threads.submit('card', 0.0, lambda: 1 // 0)
    threads.submit('card', 0.0, done.set)
    assert done.wait(PATIENCE)
    assert 'ZeroDivisionError' in caplog.text


def test_what_waits_when_it_is_stopped_is_dropped():
    threads, gate, begun, seen = Threads(1), threading.Event(), threading.Event(), []
    threads.submit('card', 0.0, lambda: (begun.set(), gate.wait(PATIENCE)))
    threads.submit('card', 0.0, seen.append, 'next')
    assert begun.wait(PATIENCE)
    stopping = threading.Thread(target=threads.stop)
    stopping.start()
    eventually(lambda: threads._is_stopping)
    gate.set()
    stopping.join(PATIENCE)
    threads.submit('card', 0.0, seen.append, 'late')
    assert 'next' not in seen and 'late' not in seen
