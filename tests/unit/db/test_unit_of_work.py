# SPDX-License-Identifier: Apache-2.0
"""Transactions whose COMMIT gets no answer, and what is left of them."""

import contextlib
import datetime

import pytest
import sqlalchemy as sa
from oslo_db import exception

from cyborg import errors
from cyborg.conductor.engine import unit_of_work
from cyborg.db.sqlalchemy import engine, migration, models, receipts
from cyborg.db.sqlalchemy.history import Cause


@pytest.fixture
def db(database):
    migration.upgrade(database)
    return database


@contextlib.contextmanager
def broken(*facts):
    raise exception.DBConnectionError
    yield


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
    with pytest.raises(errors.Unavailable, match='may be done or not'):
        change()
    assert tries == ['again']


def test_a_connection_that_breaks_before_the_end_is_no_question(db, monkeypatch):
    monkeypatch.setattr(db, 'reader', broken)
    with pytest.raises(exception.DBConnectionError), unit_of_work.transact(db, Cause('test')):
        raise exception.DBConnectionError


def test_old_receipts_are_pruned(db):
    for _ in range(2):
        with unit_of_work.transact(db, Cause('test')):
            pass
    with db.writer() as session:
        receipts.prune(session, models.now())
        receipts.add(session)
        receipts.prune(session, models.now() - datetime.timedelta(hours=1))
        assert len(session.scalars(sa.select(models.Receipt.id)).all()) == 1
