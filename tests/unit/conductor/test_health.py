# SPDX-License-Identifier: Apache-2.0
"""A conductor checks what it uses, in bounded time, with one thread at most."""

import threading

import pytest

from cyborg.conductor import health

PATIENCE = 60


@pytest.fixture(autouse=True)
def _always_checked(monkeypatch):
    monkeypatch.setattr(health, 'LIFETIME', 0)


def test_what_answers_is_well():
    assert health.Check('it', lambda: None, 'It does not answer.').failure() is None


def test_what_fails_is_told_without_details_which_are_in_the_log(caplog):
    def fail():
        raise RuntimeError('password=secret')

    assert health.Check('it', fail, 'It does not answer.').failure() == 'It does not answer.'
    assert 'password=secret' in caplog.text


def test_what_recovers_is_well_again():
    failures = [RuntimeError()]

    def call():
        if failures:
            raise failures.pop()

    check = health.Check('it', call, 'It does not answer.')
    assert check.failure() == 'It does not answer.'
    assert check.failure() is None


def test_what_hangs_is_told_and_takes_one_thread(monkeypatch):
    monkeypatch.setattr(health, 'PATIENCE', 0.01)
    calls, may_answer = [], threading.Event()

    def hang():
        calls.append(None)
        may_answer.wait(PATIENCE)

    check = health.Check('it', hang, 'It does not answer.')
    assert [check.failure() for _ in range(3)] == ['It does not answer.'] * 3
    assert len(calls) == 1
    may_answer.set()


def test_what_was_checked_just_now_is_not_checked_again(monkeypatch):
    monkeypatch.setattr(health, 'LIFETIME', PATIENCE)
    calls = []
    check = health.Check('it', lambda: calls.append(None), 'It does not answer.')
    assert [check.failure() for _ in range(3)] == [None] * 3
    assert len(calls) == 1
