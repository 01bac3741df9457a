# SPDX-License-Identifier: Apache-2.0
"""Our transactions on database servers that go away."""

import pytest
import sqlalchemy as sa
from oslo_db import exception

from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.limits import UNLIMITED
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import engine, migration, models
from cyborg.db.sqlalchemy.history import Cause
from tests.fixtures.wire import Wire
from tools import services


@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_what_was_committed_is_no_failure_though_the_server_is_gone_by_then(kind):
    with kind() as server:
        database = engine.Database(server.url)
        with database.writer() as session:
            session.execute(sa.text('CREATE TABLE fact (name VARCHAR(20))'))
        with database.writer() as session:
            session.execute(sa.text("INSERT INTO fact VALUES ('kept')"))

            killed = []

            @sa.event.listens_for(database.engine, 'reset', once=True)
            def go(*facts):  # as soon as the pool has the connection back
                server.kill()
                killed.append(True)

        assert killed
        server.start()

        @engine.retried
        def read():
            with database.reader() as session:
                return session.scalar(sa.text('SELECT name FROM fact'))

        assert read() == 'kept'
        database.close()


@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_a_connection_that_rested_is_not_trusted(kind, monkeypatch):
    monkeypatch.setattr(engine, 'RESTED', 0.0)
    with kind() as server:
        database = engine.Database(server.url)
        with database.reader() as session:
            session.execute(sa.text('SELECT 1'))
        server.kill()
        server.start()
        with database.reader() as session:
            session.execute(sa.text('SELECT 1'))
        database.close()


@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_nothing_of_a_transaction_that_failed_is_left_on_its_connection(kind):
    with kind() as server:
        database = engine.Database(server.url)
        with database.writer() as session:
            session.execute(sa.text('CREATE TABLE fact (name VARCHAR(20))'))
        with pytest.raises(ZeroDivisionError), database.writer() as session:
            session.execute(sa.text("INSERT INTO fact VALUES ('undone')"))
            raise ZeroDivisionError
        with database.writer() as session:  # the same connection, and it commits
            assert session.scalar(sa.text('SELECT COUNT(*) FROM fact')) == 0
        with database.reader() as session:
            assert session.scalar(sa.text('SELECT COUNT(*) FROM fact')) == 0
        database.close()


@pytest.mark.parametrize('end', ['kill', 'stop'])
@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_a_server_that_is_away_is_known_as_away(kind, end):
    with kind() as server:
        database = engine.Database(server.url)
        getattr(server, end)()
        for _ in range(2):  # over a connection that was lost, and over none
            with pytest.raises(exception.DBConnectionError), database.reader() as session:
                session.execute(sa.text('SELECT 1'))
        server.start()
        with database.reader() as session:
            session.execute(sa.text('SELECT 1'))
        database.close()


def test_a_statement_sees_what_was_committed_before_it():
    with services.mariadb() as server:
        database = engine.Database(server.url)
        with database.writer() as session:
            session.execute(sa.text('CREATE TABLE fact (name VARCHAR(20))'))
        with database.reader() as early:
            assert early.scalar(sa.text('SELECT COUNT(*) FROM fact')) == 0
            with database.writer() as session:
                session.execute(sa.text("INSERT INTO fact VALUES ('new')"))
            assert early.scalar(sa.text('SELECT COUNT(*) FROM fact')) == 1
        database.close()


@pytest.mark.parametrize('when', ['before', 'after'])
@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_a_transaction_whose_commit_gets_no_answer_happens_once(kind, when):
    with kind() as server, Wire(server.url) as wire:
        database = engine.Database(wire.url)
        migration.upgrade(database)
        tries = []

        @engine.retried
        def create():
            tries.append('again')
            with transact(database, Cause('test')) as unit:
                return arqs.create(unit, [{'resources:FPGA': '2'}], 'project', None, UNLIMITED)

        @engine.retried
        def leave_no_step():
            with transact(database, Cause('test')) as unit:
                unit.session.execute(sa.update(models.Device).values(status='enabled'))

        wire.cut(when)
        made = create()
        assert wire.is_cut and len(tries) == {'before': 2, 'after': 1}[when]
        wire.cut(when)
        leave_no_step()
        assert wire.is_cut
        with database.reader() as session:
            assert sorted(session.scalars(sa.select(models.ExtArq.uuid))) == sorted(
                arq.uuid for arq in made
            )
            assert len(session.scalars(sa.select(models.ArqTransition.id)).all()) == 2
            assert len(session.scalars(sa.select(models.Receipt.id)).all()) == 1
        database.close()
