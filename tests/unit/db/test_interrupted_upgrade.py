# SPDX-License-Identifier: Apache-2.0
"""An upgrade of the schema that loses its connection is repeated.

On MySQL and MariaDB each DDL statement commits by itself, so that an interrupted migration leaves
a part of its work.
"""

import datetime
import re

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from cyborg import errors
from cyborg.db.sqlalchemy import clock, engine, migration, models, revisions
from tests.fixtures.databases import AT_HAND, URLS, Rows, differences, empty

pytestmark = pytest.mark.migrations

#: the last migration of the previous release
PREVIOUS = '0013'
WRITES = {'INSERT', 'UPDATE', 'DELETE'}
DDL = {'CREATE', 'ALTER', 'DROP'}
#: the COMMIT of a DDL statement that fails afterwards
IMPLICIT = 'COMMIT by DDL'
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC)
#: tables by the migration that creates them, and that services of earlier releases cannot use
CREATED = {'rounds': '0009', 'receipts': '0010', 'tasks': '0013'}


class Interruptions:
    """Closes the connection before each statement that writes, and before each COMMIT. A statement
    that comes again is left alone."""

    def __init__(self, database, verbs=frozenset(WRITES | DDL | {'COMMIT', IMPLICIT})):
        self._engine = database.engine
        self._verbs = verbs
        self._seen = set()
        self._last = None
        self._is_uncommitted = self._has_interrupted = False

    def interrupt(self, change):
        """Yield after each interruption of a function, which is then called again."""
        listeners = {'before_cursor_execute': self._execute, 'commit': self._commit}
        for event, function in listeners.items():
            sa.event.listen(self._engine, event, function)
        try:
            while self._is_interrupted(change):
                yield
        finally:
            for event, function in listeners.items():
                sa.event.remove(self._engine, event, function)

    def _is_interrupted(self, change):
        self._is_uncommitted = self._has_interrupted = False
        try:
            change()
        except (db_exc.DBError, sa.exc.SQLAlchemyError):
            if not self._has_interrupted:
                raise
        assert not self._is_uncommitted
        return self._has_interrupted

    def _execute(self, connection, cursor, statement, parameters, context, executemany):
        verb = statement.split(maxsplit=1)[0]
        if verb in DDL and self._is_uncommitted:
            # it commits what was before it, and can fail after that
            self._close(connection, IMPLICIT, statement)
        if verb in DDL | WRITES:
            self._close(connection, verb, statement)
            self._last = statement
            self._is_uncommitted = verb in WRITES and not self._has_interrupted

    def _commit(self, connection):
        if self._is_uncommitted:
            self._close(connection, 'COMMIT', f'after {self._last}')
        self._is_uncommitted = False

    def _close(self, connection, verb, statement):
        if verb not in self._verbs or (verb, statement) in self._seen or self._has_interrupted:
            return
        self._seen.add((verb, statement))
        self._has_interrupted = True
        opened = connection.connection.dbapi_connection
        if verb == IMPLICIT:
            opened.commit()
        opened.close()


@pytest.fixture
def server(monkeypatch):
    """An empty database on MariaDB."""
    if 'mysql' not in AT_HAND:
        pytest.skip('needs MariaDB, which make test-services runs')
    monkeypatch.setattr(clock, 'now', lambda: NOW)
    made = engine.Database(URLS['mysql'])
    empty(made)
    yield made
    empty(made)
    made.close()


def fill(database):
    """Insert rows that later migrations change, into a schema at 0007."""
    with database.writer() as session:
        rows = Rows(session)
        profile = rows.add('device_profiles', uuid='profile', name='one card', groups='[]')
        device = rows.add('devices', uuid='card', hostname='compute1', status='enabled')
        region = rows.add(
            'deployables', uuid='region', rp_uuid='region', name='region', device_id=device
        )
        rows.add(
            'deployables',
            uuid='loading',
            rp_uuid='loading',
            name='loading',
            device_id=device,
            program_image='image',
            program_since=NOW,
        )
        for key, value in (('rc', 'FPGA'), ('trait0', 'CUSTOM_A'), ('reserved', '3')):
            rows.add('attributes', uuid=key, deployable_id=region, key=key, value=value)
        for project in ('owner', 'admins'):
            rows.add('arq_transitions', instance_uuid='server', project_id=project)
        started = rows.add(
            'ext_arqs',
            uuid='started',
            state='BindStarted',
            is_prepared=False,
            device_profile_id=profile,
            instance_uuid='server',
            project_id='admins',
            profile_group='{}',
        )
        for uuid, values in {
            'idle': {'turn': 1},
            'released': {'turn': 2, 'cleanup_since': NOW, 'work_attempts': 4, 'work_error': 'why'},
            'started': {'turn': 3, 'arq_id': started},
            'under image': {'turn': 4, 'is_programming': True},
        }.items():
            rows.add(
                'attach_handles',
                uuid=uuid,
                key=uuid,
                type='MDEV',
                info='{}',
                deployable_id=region,
                **{'is_host_prepared': True} | values,
            )


#: columns with numbers and UUIDs of tasks, which a repeated migration makes anew
OF_TASKS = {('tasks', 'id'), ('tasks', 'uuid'), ('deployables', 'program_task_uuid')}


def content(database):
    """Returns all tables: how they are created, and their rows."""
    with database.engine.connect() as connection:
        reflected = sa.MetaData()
        reflected.reflect(connection)
        names = task_names(connection, reflected.tables)

        def rows(table):
            for row in connection.execute(sa.select(table)).mappings():
                yield {
                    column: names.get(value) if (table.name, column) in OF_TASKS else value
                    for column, value in row.items()
                }

        return {
            name: (definition(connection, name), sorted(map(repr, rows(table))))
            for name, table in reflected.tables.items()
        }


def task_names(connection, tables):
    """Returns what tells tasks from each other, by UUID."""
    if 'tasks' not in tables:
        return {}
    return {
        task.uuid: (task.kind, task.deployable_uuid, task.handle_uuid)
        for task in connection.execute(sa.select(tables['tasks']))
    }


def definition(connection, table):
    """Returns the lines of CREATE TABLE; indexes have no order."""
    text = connection.exec_driver_sql(f'SHOW CREATE TABLE {table}').one()[1]
    lines = re.sub('AUTO_INCREMENT=[0-9]+ ', '', text).replace(',\n', '\n').splitlines()
    return sorted(lines, key=lambda line: line if line.startswith('  KEY') else '')


def prepare(database, revision):
    """Make a database of this revision, with rows if it is not empty."""
    empty(database)
    if revision is None:
        return
    migration.upgrade(database, '0007')
    fill(database)
    migration.upgrade(database, revision)
    if revision == PREVIOUS:
        # the previous release has the other table of versions only
        with database.engine.begin() as connection:
            connection.execute(sa.text(f'DROP TABLE {revisions.VERSION_TABLE}'))


def upgrade_to_tasks(database):
    migration.upgrade(database, '0013')


@pytest.mark.parametrize(
    ('start', 'change'),
    [
        (None, migration.upgrade),
        (None, migration.create_schema),
        ('0007', upgrade_to_tasks),
        (PREVIOUS, migration.expand),
    ],
)
def test_an_upgrade_that_is_interrupted_at_any_statement_is_repeated(server, start, change):
    # given what it makes of a database if it is not interrupted
    prepare(server, start)
    change(server)
    expected = content(server)
    # when it is interrupted before each statement, and repeated
    prepare(server, start)
    number = 0
    for _ in Interruptions(server).interrupt(lambda: change(server)):
        number += 1
        check_versions(server, start)
    # then nothing else has become of the database
    assert number > 10
    assert content(server) == expected
    if change is not upgrade_to_tasks:
        assert differences(server) == []
        assert revisions.obstacle(server) is None


def check_versions(database, start):
    """Services find out in an unfinished schema whether they can use it."""
    present, floor = revisions.version(database), revisions.floor(database)
    if start is None and present is None:
        assert floor is None
        return
    # this release does not use it before it has everything
    assert (revisions.obstacle(database) is None) == (present == revisions.head())
    # the previous one goes on
    if start == PREVIOUS:
        assert floor == PREVIOUS
    # earlier ones do not, once something has changed that they cannot use
    tables = sa.inspect(database.engine).get_table_names()
    assert floor >= max((CREATED[name] for name in CREATED if name in tables), default='')


@pytest.mark.parametrize(
    ('interrupted', 'other'),
    [
        (migration.create_schema, migration.upgrade),
        (migration.upgrade, migration.create_schema),
    ],
)
def test_an_interrupted_command_is_not_repeated_by_another_one(server, interrupted, other):
    # given a command that was interrupted at its fifteenth statement
    interruptions = Interruptions(server).interrupt(lambda: interrupted(server))
    for _ in range(15):
        next(interruptions)
    interruptions.close()
    before = content(server)
    # when another one meets its tables
    with pytest.raises(errors.ConfigError, match='repeat the same command'):
        other(server)
    # then it leaves them as they are, and the first one can be repeated
    after = content(server)
    assert {name: after[name] for name in before} == before
    interrupted(server)
    assert differences(server) == []


def test_each_migration_is_committed_with_its_revision(server):
    prepare(server, PREVIOUS)
    interruptions = Interruptions(server, {'COMMIT'}).interrupt(lambda: migration.upgrade(server))
    known = [each.revision for each in revisions.known()]
    assert [revisions.version(server) for _ in interruptions] == known[known.index(PREVIOUS) : -1]
    assert revisions.version(server) == revisions.head()


def test_an_interrupted_upgrade_has_changed_nothing_where_ddl_is_transactional(database):
    if database.engine.dialect.name == 'mysql':
        pytest.skip('each DDL statement commits by itself')

    def tables():
        inspector = sa.inspect(database.engine)
        return {
            name: [column['name'] for column in inspector.get_columns(name)]
            for name in inspector.get_table_names()
        }

    migration.upgrade(database, '0012')
    before = tables()
    interruptions = Interruptions(database, {'COMMIT'})
    number = 0
    for _ in interruptions.interrupt(lambda: migration.upgrade(database)):
        number += 1
        assert tables() == before
        assert revisions.version(database) == revisions.floor(database) == '0012'
    # all migrations are one transaction
    assert number == 1
    assert differences(database) == []
    assert revisions.version(database) == revisions.head()
    assert revisions.floor(database) == PREVIOUS
    assert models.Base.metadata.tables.keys() <= tables().keys()
