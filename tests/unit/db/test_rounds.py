# SPDX-License-Identifier: Apache-2.0
"""One conductor at a time does a round, on every database at hand."""

import datetime
import threading

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from cyborg.db.sqlalchemy import clock, migration, models, rounds

pytestmark = pytest.mark.migrations
INTERVAL = 3600


@pytest.fixture
def db(database):
    migration.upgrade(database)
    return database


def take(db):
    try:
        with db.writer() as session:
            return rounds.take(session, 'sweep', INTERVAL)
    except db_exc.DBDuplicateEntry:
        return None


def finish(db, lease, **figures):
    with db.writer() as session:
        rounds.finish(session, lease, INTERVAL, figures)


def found(db):
    with db.reader() as session:
        return rounds.found(session)


def let_it_end(db):
    """As if time had passed."""
    with db.writer() as session:
        session.execute(
            sa.update(models.Round).values(until=clock.now() - datetime.timedelta(days=1))
        )


@pytest.fixture(params=['the first ever', 'one that has ended'])
def free(db, request):
    if request.param == 'one that has ended':
        take(db)
        let_it_end(db)
    return db


def test_one_of_many_takes_a_lease_that_is_free(free):
    taken, together = [], threading.Barrier(8)

    def compete():
        together.wait()
        taken.append(take(free))

    threads = [threading.Thread(target=compete) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 8
    assert sum(isinstance(each, rounds.Lease) for each in taken) == 1


def test_others_hear_when_the_lease_ends(db):
    take(db)
    assert 0 < take(db) <= INTERVAL


def test_the_clocks_of_conductors_do_not_matter(db, monkeypatch):
    take(db)
    later = clock.local_now() + datetime.timedelta(days=1)
    monkeypatch.setattr(clock, 'local_now', lambda: later)
    monkeypatch.setattr(clock._Clock, 'ahead', datetime.timedelta())
    assert not isinstance(take(db), rounds.Lease)


def test_who_goes_on_after_its_lease_has_ended_changes_nothing(db):
    late = take(db)
    let_it_end(db)
    finish(db, take(db), arqs=2)
    finish(db, late, arqs=1)
    assert found(db)['sweep'].figures == {'arqs': 2}
    assert not isinstance(take(db), rounds.Lease)


def test_what_was_found_has_an_age(db):
    assert found(db) == {}
    lease = take(db)
    assert found(db) == {}
    finish(db, lease, arqs=2)
    assert 0 <= found(db)['sweep'].age < INTERVAL
