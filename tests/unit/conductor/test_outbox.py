# SPDX-License-Identifier: Apache-2.0
"""The outbox on a table of its own, with a Nova that can be told what to answer."""

import time
import uuid

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.conductor.outbox import Outbox
from cyborg.db.sqlalchemy import migration, models, nova_events
from cyborg.db.sqlalchemy.engine import Database
from tests.fixtures.cloud import eventually


class Nova:
    def __init__(self):
        self.posts, self.codes, self.is_down = [], {}, False

    def send_events(self, events, request_id=None):
        if self.is_down:
            raise errors.Unavailable('Nova is down.')
        self.posts.append(events)
        return [self.codes.get(arq, 200) for _, arq, _ in events]


@pytest.fixture
def nova():
    return Nova()


@pytest.fixture
def db(tmp_path):
    database = Database(f'sqlite:///{tmp_path}/cyborg.db')
    migration.upgrade(database)
    yield database
    database.close()


@pytest.fixture
def outbox(db, nova):
    return Outbox(db, nova, interval=30)


def tell(outbox, db, *arqs):
    """Have Nova hear of these requests of one server; answers their events."""
    instance = str(uuid.uuid4())
    with db.writer() as session:
        events = nova_events.add(session, [
            (models.ExtArq(uuid=arq, instance_uuid=instance), 'completed') for arq in arqs])
    outbox.send(events)
    return events


def left(db):
    with db.reader() as session:
        return session.scalars(sa.select(models.NovaEvent.arq_uuid).order_by(
            models.NovaEvent.arq_uuid)).all()


def test_what_nova_heard_of_many_servers_is_removed_in_one_statement(outbox, db, nova):
    for server in range(5):
        tell(outbox, db, f'{server}a', f'{server}b')
    outbox.deliver_fresh()
    assert len(nova.posts) == 5 and len(left(db)) == 10

    statements = []
    sa.event.listen(db.engine, 'before_cursor_execute',
                    lambda connection, cursor, statement, *rest: statements.append(statement))
    outbox.settle()
    outbox.settle()
    assert [each.split()[0] for each in statements if not each.startswith('BEGIN')] == ['DELETE']
    assert left(db) == []


def test_what_nova_refused_stays_when_the_rest_is_removed(outbox, db, nova):
    nova.codes = {'refused': 400}
    tell(outbox, db, 'heard', 'refused')
    tell(outbox, db, 'other')
    outbox.deliver_fresh()
    outbox.settle()
    assert left(db) == ['refused']


def test_what_is_removed_late_is_not_sent_again(outbox, db, nova):
    tell(outbox, db, 'heard')
    outbox.deliver_fresh()
    outbox.deliver_fresh()
    assert not outbox.deliver_due() and len(nova.posts) == 1


def test_an_older_event_of_a_request_waits_while_a_newer_one_was_heard(outbox, db, nova):
    nova.is_down = True
    tell(outbox, db, 'twice')
    outbox.deliver_fresh()
    nova.is_down = False
    outbox._circuit.note(is_up=True)
    tell(outbox, db, 'twice')
    outbox.deliver_fresh()
    outbox.settle()
    assert left(db) == ['twice'] and len(nova.posts) == 1


def test_events_that_wait_when_the_conductor_stops_are_given_back(outbox, db, nova):
    tell(outbox, db, 'sent')
    outbox.deliver_fresh()
    outbox._stopping.set()
    tell(outbox, db, 'late')
    outbox._run()
    assert left(db) == ['late'] and len(nova.posts) == 1
    with db.reader() as session:
        assert session.scalar(sa.select(models.NovaEvent.claim)) is None


def test_a_database_that_fails_is_left_alone_for_a_while(outbox, db):
    with db.writer() as session:
        session.execute(sa.text('DROP TABLE nova_events'))
    tries = []
    sa.event.listen(db.engine, 'begin', tries.append)
    outbox.start()
    try:
        eventually(lambda: tries)
        time.sleep(0.3)
        assert len(tries) == 1
    finally:
        outbox.stop()
