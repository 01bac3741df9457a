# SPDX-License-Identifier: Apache-2.0
"""Agents in SQL: which heartbeats and reports count, and who is alive."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg import errors, objects
from cyborg.db.sqlalchemy import agents, clock, migration, models
from cyborg.db.sqlalchemy.agents import Beat

TIMEOUT = datetime.timedelta(minutes=5)
HOST = 'compute1'


@pytest.fixture
def db(database):
    migration.create_schema(database)
    return database


def report(db, sequence, after=None, digest='one', hostname=HOST):
    facts = {} if after is None else {'after': after}
    report = objects.Report(
        hostname=hostname,
        sequence=sequence,
        digest=digest,
        drivers=[],
        devices=[],
        adopted={},
        **facts,
    )
    with db.writer() as session:
        agents.accept(session, report)


def beat(db, digest='one'):
    with db.writer() as session:
        return agents.beat(session, HOST, digest, clock.now() - TIMEOUT)


def write(db, **values):
    with db.writer() as session:
        session.execute(
            sa.update(models.Agent).where(models.Agent.hostname == HOST).values(**values)
        )


def read(db, column, hostname=HOST):
    with db.reader() as session:
        return session.scalar(sa.select(column).where(models.Agent.hostname == hostname))


# -- heartbeats --------------------------------------------------------------------------------


def test_a_heartbeat_of_an_unchanged_host_makes_it_live_longer(db):
    report(db, 1)
    write(db, last_heartbeat=clock.now() - TIMEOUT / 2)
    assert beat(db) == Beat(is_current=True)
    assert clock.now() - read(db, models.Agent.last_heartbeat) < TIMEOUT / 2


def test_a_heartbeat_with_another_digest_asks_for_a_report_and_counts(db):
    report(db, 1)
    write(db, last_heartbeat=clock.now() - TIMEOUT / 2)
    assert beat(db, 'two') == Beat()
    assert clock.now() - read(db, models.Agent.last_heartbeat) < TIMEOUT / 2


def test_a_heartbeat_after_a_silence_says_so(db):
    report(db, 1)
    write(db, last_heartbeat=clock.now() - 2 * TIMEOUT)
    assert beat(db) == Beat(is_current=True, was_silent=True)
    assert beat(db) == Beat(is_current=True)


def test_a_heartbeat_of_an_unknown_host_asks_for_its_first_report(db):
    assert beat(db) == Beat()


def test_what_a_conductor_of_an_earlier_release_has_stored_is_reported_again(db):
    report(db, 1)
    write(db, sequence=2)  # an earlier release does not know stored_sequence
    assert beat(db) == Beat()


def test_a_host_that_is_distrusted_reports_again(db):
    report(db, 1)
    with db.writer() as session:
        agents.distrust(session, {HOST})
    assert beat(db) == Beat()


# -- the end of a reservation ------------------------------------------------------------------


@pytest.fixture(params=[agents.RESERVING, agents.RESERVED])
def withdrawn(db, request):
    """The devices of the host are reserved, because its agent is silent."""
    report(db, 1)
    write(db, last_heartbeat=clock.now() - 2 * TIMEOUT, withdrawal=request.param)
    assert returned(db) == []
    return request.param


def returned(db):
    with db.reader() as session:
        return agents.returned(session, clock.now() - TIMEOUT)


def give_back(db):
    with db.writer() as session:
        return agents.give_back(session, HOST, clock.now() - TIMEOUT)


def test_an_agent_that_was_only_disconnected_returns_with_a_heartbeat(db, withdrawn):
    assert beat(db).is_current
    assert returned(db) == [HOST]
    assert give_back(db) and returned(db) == []
    assert beat(db) == Beat(is_current=True)


@pytest.mark.parametrize('is_silent', [True, False])
def test_an_agent_that_was_restarted_returns_with_its_report(db, withdrawn, is_silent):
    if not is_silent:  # a conductor of an earlier release has taken its first heartbeat
        write(db, last_heartbeat=clock.now() - TIMEOUT / 2)
    for _ in range(2):
        assert beat(db, 'none') == Beat(was_silent=is_silent)
        is_silent = False
        assert returned(db) == [] and not give_back(db)
        assert read(db, models.Agent.withdrawal) == withdrawn
    report(db, 2, after=1)
    assert returned(db) == [HOST] and give_back(db)
    assert beat(db) == Beat(is_current=True)


def test_a_late_heartbeat_of_the_process_before_does_not_count(db, withdrawn):
    beat(db, 'none')
    assert not beat(db).is_current
    assert returned(db) == []


def test_what_is_not_reserved_keeps_its_digest(db):
    report(db, 1)
    beat(db, 'none')
    assert beat(db) == Beat(is_current=True)


# -- reports -----------------------------------------------------------------------------------


def test_a_report_must_follow_the_one_that_the_agent_knows_as_the_last(db):
    report(db, 10)
    report(db, 20, after=10)
    with pytest.raises(errors.StaleReport):
        report(db, 30, after=10)
    assert read(db, models.Agent.sequence) == 20


def test_a_report_that_names_no_other_must_be_newer(db):
    report(db, 10)
    with pytest.raises(errors.StaleReport):
        report(db, 10)
    report(db, 11)
    assert read(db, models.Agent.sequence) == 11


def test_hosts_do_not_concern_one_another(db):
    report(db, 10)
    report(db, 1, hostname='compute2')
    assert read(db, models.Agent.sequence) == 10


# -- who is alive ------------------------------------------------------------------------------


def test_an_agent_falls_silent_once(db):
    report(db, 1)
    now = clock.now()
    with db.reader() as session:
        assert agents.fallen_silent(session, None, now - TIMEOUT) == {}
        fallen = agents.fallen_silent(session, None, now + TIMEOUT)
        assert set(fallen) == {HOST}
        # the next round begins where that one ended
        assert agents.fallen_silent(session, now + TIMEOUT, now + 2 * TIMEOUT) == {}


def test_an_agent_is_found_by_its_uuid_before_a_host_that_has_this_name(db):
    report(db, 1)
    uuid = read(db, models.Agent.uuid)
    report(db, 1, hostname=uuid)
    with db.reader() as session:
        assert agents.get(session, clock.now() - TIMEOUT, uuid).hostname == HOST
        assert agents.get(session, clock.now() - TIMEOUT, HOST).uuid == uuid
        with pytest.raises(errors.AgentNotFound):
            agents.get(session, clock.now() - TIMEOUT, 'nowhere')
