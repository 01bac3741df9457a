# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a request with an idempotency key has created, and how long that is known."""

import datetime

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from cyborg import errors
from cyborg.db.sqlalchemy import clock, migration, models, receipts
from cyborg.db.sqlalchemy.receipts import Key

KEY = Key('11111111-1111-4111-8111-111111111111', 'digest')
MADE = ['22222222-2222-4222-8222-222222222222', '33333333-3333-4333-8333-333333333333']
DAY = datetime.timedelta(days=1)


@pytest.fixture
def db(database):
    migration.create_schema(database)
    return database


def add(db, key=None, made=None):
    with db.writer() as session:
        return receipts.add(session, key, made)


def made(db, key=KEY):
    with db.reader() as session:
        return receipts.made(session, key)


def test_what_was_made_is_listed_in_its_order(db):
    assert made(db) is None
    add(db, KEY, MADE)
    assert made(db) == MADE


def test_a_request_that_made_nothing_is_not_an_unknown_request(db):
    add(db, KEY, [])
    assert made(db) == []


def test_the_same_key_with_other_content_is_refused(db):
    add(db, KEY, MADE)
    with pytest.raises(errors.IdempotencyKeyReused):
        made(db, Key(KEY.uuid, 'another digest'))


def test_a_key_is_used_once(db):
    add(db, KEY, MADE)
    with pytest.raises(db_exc.DBDuplicateEntry):
        add(db, KEY, MADE)


def test_a_receipt_proves_its_own_commit_and_no_other(db):
    proof = add(db)
    try:
        with db.writer() as session:
            other = receipts.add(session)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    with db.reader() as session:
        assert session.scalar(proof()) is not None
        assert session.scalar(other()) is None


def test_keys_are_kept_longer_than_proofs(db):
    add(db)
    add(db, KEY, MADE)
    now = clock.now()
    for before, keys_before, left in (
        (now - DAY, now - DAY, 2),
        (now + DAY, now - DAY, 1),
        (now + DAY, now + DAY, 0),
    ):
        with db.writer() as session:
            receipts.prune(session, before, keys_before)
            assert session.scalar(sa.select(sa.func.count()).select_from(models.Receipt)) == left
        assert made(db) == (MADE if left else None)
