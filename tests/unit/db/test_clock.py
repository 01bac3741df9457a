# SPDX-License-Identifier: Apache-2.0
"""Conductors whose clocks are wrong use the clock of the database."""

import datetime
import types

import pytest
from oslo_utils import timeutils

from cyborg.db.sqlalchemy import agents, clock, engine, migration, models, rounds

HOUR = datetime.timedelta(hours=1)
SLACK = datetime.timedelta(seconds=2)


@pytest.fixture(autouse=True)
def corrected(monkeypatch):
    """What is corrected here is over after the test."""
    monkeypatch.setattr(clock._Clock, 'ahead', datetime.timedelta())


def real_now():
    return datetime.datetime.now(datetime.UTC)


def set_clock(monkeypatch, wrong):
    """Have the clock of this process go wrong by so much, as that of a machine which slept."""
    monkeypatch.setattr(clock, 'local_now', lambda: real_now() + wrong)


@pytest.fixture
def connect(tmp_path):
    """Makes the database of another conductor."""
    opened = []

    def make():
        made = engine.Database(f'sqlite:///{tmp_path}/cyborg.db')
        opened.append(made)
        return made

    yield make
    for each in opened:
        each.close()


@pytest.mark.parametrize('wrong', [HOUR, -HOUR])
def test_a_conductor_that_starts_uses_the_clock_of_the_database(connect, monkeypatch, wrong):
    set_clock(monkeypatch, wrong)
    assert abs(clock.now() - real_now()) > HOUR - SLACK
    connect()
    assert abs(clock.now() - real_now()) < SLACK


class Wall(datetime.datetime):
    """The clock of this machine after somebody has set it."""

    @classmethod
    def now(cls, tz=None):
        return super().now(tz) + HOUR


def test_a_clock_that_is_set_while_a_conductor_runs_changes_nothing(connect, monkeypatch):
    db = connect()
    migration.upgrade(db)
    wall = types.SimpleNamespace(datetime=Wall, timedelta=datetime.timedelta)
    monkeypatch.setattr(clock, 'datetime', wall)
    monkeypatch.setattr(timeutils, 'utcnow', lambda with_timezone=False: real_now() + HOUR)
    assert abs(clock.now() - real_now()) < SLACK


def test_a_clock_that_goes_wrong_later_is_corrected_with_the_next_sweep(connect, monkeypatch):
    db = connect()
    migration.upgrade(db)
    set_clock(monkeypatch, HOUR)
    with db.writer() as session:
        rounds.take(session, 'sweep', 30)
    assert abs(clock.now() - real_now()) < SLACK
    # and when it is set right, that is seen, too
    set_clock(monkeypatch, datetime.timedelta())
    with db.writer() as session:
        rounds.take(session, 'sweep', 30)
    assert clock._Clock.ahead == datetime.timedelta()


def test_an_agent_that_one_conductor_heard_lives_for_another_one(connect, monkeypatch):
    # given a conductor whose clock is an hour slow, which hears an agent
    db = connect()
    migration.upgrade(db)
    with db.writer() as session:
        session.add(
            models.Agent(
                hostname='compute1',
                last_heartbeat=real_now() - HOUR,
                sequence=1,
                digest='digest',
                is_ready=True,
                drivers=[],
                conflicts={},
            )
        )
    set_clock(monkeypatch, -HOUR)
    with connect().writer() as session:
        agents.beat(session, 'compute1', 'digest', clock.now() - HOUR)
    # when another one looks, whose clock is right
    monkeypatch.setattr(clock._Clock, 'ahead', datetime.timedelta())
    set_clock(monkeypatch, datetime.timedelta())
    with db.reader() as session:
        since = clock.now() - datetime.timedelta(minutes=1)
        assert agents.get(session, since, 'compute1').is_alive


def test_small_differences_are_left_alone(monkeypatch):
    clock.follow(real_now() + datetime.timedelta(seconds=0.3), real_now())
    assert clock._Clock.ahead == datetime.timedelta()


def test_an_answer_that_took_long_corrects_what_it_proves():
    # the database may have looked at its clock at any moment of this hour
    clock.follow(real_now() - HOUR / 2, real_now() - HOUR)
    assert clock._Clock.ahead == datetime.timedelta()
    # whatever moment it was, this clock is slow
    clock.follow(real_now() + HOUR, real_now() - HOUR)
    assert HOUR < clock._Clock.ahead < 2 * HOUR
