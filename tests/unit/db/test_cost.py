# SPDX-License-Identifier: Apache-2.0
"""Queries of a round read the rows with open work only, on every database at hand."""

import contextlib
import datetime
import functools

import pytest
import sqlalchemy as sa

from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import clock, history, migration, models, tasks
from tools.bench.stored_rows import HANDLES, StoredRows

pytestmark = pytest.mark.migrations
#: of which the database has so many that a scan is not the shorter way
DEVICES = 250
DAY = datetime.timedelta(days=1)
#: whose rows grow with the cloud
LARGE = {'attach_handles', 'tasks', 'ext_arqs', 'deployables', 'devices', 'arq_transitions'}


@pytest.fixture
def fill(database):
    migration.create_schema(database)
    made = contextlib.ExitStack()

    def fill(devices):
        """Have so many devices, all held, and the agents of their hosts."""
        filling = made.enter_context(StoredRows(database.engine.url))
        filling.grow(devices * HANDLES)
        with database.writer() as session:
            session.execute(
                sa.update(models.AttachHandle).values(is_host_prepared=True),
                execution_options={'synchronize_session': False},
            )
            session.execute(
                sa.insert(models.Agent),
                [
                    {
                        'hostname': name,
                        'last_heartbeat': clock.now(),
                        'sequence': 1,
                        'digest': '',
                        'is_ready': True,
                        'drivers': [],
                        'conflicts': {},
                    }
                    for name in session.scalars(sa.select(models.Device.hostname).distinct())
                ],
            )
            # what hosts did, of which a record is kept
            session.execute(
                sa.insert(models.Task),
                [
                    {
                        'kind': 'release',
                        'state': 'done',
                        'hostname': device.hostname,
                        'device_uuid': device.uuid,
                        'deployable_uuid': device.uuid,
                        'handle_uuid': device.uuid,
                        'finished_at': clock.now(),
                    }
                    for device in session.scalars(sa.select(models.Device))
                    for _ in range(10)
                ],
            )
        with database.engine.connect() as connection:
            # servers count by themselves, later; SQLite never does
            for name in ANALYSED.get(connection.dialect.name, ()):
                connection.exec_driver_sql(name)
            connection.commit()

    with made:
        yield fill


ANALYSED = {
    'mysql': [f'ANALYZE TABLE {name}' for name in models.Base.metadata.tables],
    'postgresql': ['ANALYZE'],
}


def look(session):
    """All that a round asks of the whole cloud."""
    now = clock.now()
    tasks.owing_hosts(session, now, now - DAY)
    history.prune(session, now - DAY)


def scans(database, do):
    """The large tables that the statements of something go through from end to end."""
    statements = []

    def note(connection, cursor, statement, parameters, *rest):
        if not statement.startswith('BEGIN'):
            statements.append((statement, parameters))

    with database.reader() as session:
        connection = session.connection()
        sa.event.listen(connection, 'before_cursor_execute', note)
        do(session)
        sa.event.remove(connection, 'before_cursor_execute', note)
        if connection.dialect.name == 'postgresql':  # which would rather read a small table whole
            connection.exec_driver_sql('SET LOCAL enable_seqscan = off')
        plans = [
            row
            for statement, parameters in statements
            for row in connection.exec_driver_sql(
                f'EXPLAIN {QUERY_PLAN.get(connection.dialect.name, "")} {statement}', parameters
            )
        ]
    assert plans
    return {
        table
        for table in LARGE
        for plan in plans
        if IS_SCAN[database.engine.dialect.name](plan, table)
    }


QUERY_PLAN = {'sqlite': 'QUERY PLAN'}
IS_SCAN = {
    'sqlite': lambda plan, table: plan[-1].startswith(f'SCAN {table}'),
    'mysql': lambda plan, table: plan.table == table and plan.type in ('ALL', 'index'),
    'postgresql': lambda plan, table: f'Seq Scan on {table}' in plan[0],
}


def test_what_is_owed_is_found_by_indexes(database, fill):
    fill(DEVICES)
    assert scans(database, look) == set()
    # whereas what must be compared is compared
    assert scans(database, lambda session: session.execute(sa.select(models.AttachHandle)))


def test_what_a_host_has_to_do_is_found_among_its_own(database, fill):
    fill(DEVICES)
    pending = functools.partial(tasks.pending, pause=float)
    for ask in (pending, tasks.of_host):
        assert scans(database, lambda session, ask=ask: ask(session, 'stored1')) == set()


class Neighbour:
    """A Placement and a Nova with whom all agrees. Remembers how much was read when it was first
    asked."""

    def __init__(self, fetched):
        self._fetched, self.first = fetched, None

    def exists(self, server):
        self.first = self.first or len(self._fetched)
        return True

    def providers_of(self, consumer):
        return All()

    def other_servers_on(self, provider, servers):
        return set()


class All(set):
    """Nothing is left of what it is taken from."""

    def __rsub__(self, other):
        return set()


@pytest.mark.parametrize('database', ['sqlite'], indirect=True)
def test_an_audit_reads_what_it_finds_and_one_host_at_a_time(database, fill):
    fill(DEVICES)
    fetched = []

    def note(cursor, row):
        fetched.append(row)
        return row

    database.engine.dispose()
    sa.event.listen(
        database.engine,
        'connect',
        lambda connection, record: setattr(connection, 'row_factory', note),
    )
    with database.writer() as session:
        session.execute(sa.update(models.ExtArq).values(updated_at=clock.now() - DAY))
    # what is compared in the database stays there: it counts two kinds of events
    fetched.clear()
    assert Audit(database).look() == []
    assert len(fetched) == 2
    # what is compared with others is read as they are asked
    neighbour = Neighbour(fetched)
    fetched.clear()
    assert Audit(database, neighbour, neighbour).look() == []
    assert neighbour.first < len(fetched) / 10
    # and what disagrees is found
    with database.writer() as session:
        session.execute(
            sa.update(models.AttachHandle)
            .values(arq_id=None)
            .where(models.AttachHandle.id == StoredRows.OFFSET)
        )
    [finding] = Audit(database).look()
    assert 'without a handle' in finding.what
