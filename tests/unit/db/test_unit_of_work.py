# SPDX-License-Identifier: Apache-2.0
"""Transactions whose COMMIT gets no answer, and what is left of them."""

import contextlib
import datetime
import types

import pytest
import sqlalchemy as sa
from oslo_db import exception

from cyborg import errors
from cyborg.conductor.engine import unit_of_work
from cyborg.db.sqlalchemy import clock, engine, migration, models, receipts
from cyborg.db.sqlalchemy.history import Cause


@pytest.fixture
def db(database):
    migration.upgrade(database)
    return database


@contextlib.contextmanager
def broken(*facts):
    raise exception.DBConnectionError
    yield


class NothingYet:
    """A session that does not see a commit which is still in progress."""

    def scalar(self, query):
        return None


def lose_answers(db, monkeypatch):
    writer = db.writer

    @contextlib.contextmanager
    def write():
        with writer() as session:
            yield session
        raise exception.DBConnectionError

    monkeypatch.setattr(db, 'writer', write)


def test_what_nobody_can_tell_to_be_done_is_not_repeated(db, monkeypatch):
    lose_answers(db, monkeypatch)
    monkeypatch.setattr(db, 'reader', broken)
    tries = []

    @engine.retried
    def change():
        tries.append('again')
        with unit_of_work.transact(db, Cause('test')):
            pass

    with pytest.raises(errors.Unavailable, match='may have been performed or not'):
        change()
    assert tries == ['again']


def test_a_commit_that_the_server_is_still_performing_is_waited_for(db, monkeypatch):
    lose_answers(db, monkeypatch)
    reader, pauses = db.reader, []

    def read():  # the third check finds the commit
        return reader() if len(pauses) == 3 else contextlib.nullcontext(NothingYet())

    monkeypatch.setattr(unit_of_work, 'time', types.SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(db, 'reader', read)
    with unit_of_work.transact(db, Cause('test')):
        pass
    assert pauses == [0, 0.1, 0.2]


def test_a_commit_without_a_proof_was_not_performed(db, monkeypatch):
    lose_answers(db, monkeypatch)
    pauses = []
    monkeypatch.setattr(unit_of_work, 'time', types.SimpleNamespace(sleep=pauses.append))
    monkeypatch.setattr(db, 'reader', lambda: contextlib.nullcontext(NothingYet()))
    with pytest.raises(exception.DBConnectionError), unit_of_work.transact(db, Cause('test')):
        pass
    assert pauses == [0, 0.1, 0.2, 0.4, 0.4]


def test_a_connection_that_breaks_before_the_end_is_no_question(db, monkeypatch):
    monkeypatch.setattr(db, 'reader', broken)
    with pytest.raises(exception.DBConnectionError), unit_of_work.transact(db, Cause('test')):
        raise exception.DBConnectionError


def test_old_receipts_are_pruned(db):
    key, now = receipts.Key('key', 'digest'), clock.now()
    for _ in range(2):
        with unit_of_work.transact(db, Cause('test')):
            pass
    later, hour = clock.now(), datetime.timedelta(hours=1)
    with db.writer() as session:
        receipts.add(session, key, ['made'])
        # those with keys are kept longer
        receipts.prune(session, later + hour, now - hour)
        assert receipts.made(session, key) == ['made']
        assert len(session.scalars(sa.select(models.Receipt.id)).all()) == 1
        receipts.prune(session, now - hour, now - hour)
        assert receipts.made(session, key) == ['made']
        receipts.prune(session, now - hour, later + hour)
        assert receipts.made(session, key) is None
