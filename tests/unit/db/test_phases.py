# SPDX-License-Identifier: Apache-2.0
"""The schema is upgraded while services of the previous release use it."""

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.cmd import dbsync
from cyborg.db.sqlalchemy import clock, migration, models, online_migrations, revisions
from cyborg.db.sqlalchemy.online_migrations import OnlineMigration
from cyborg.db.sqlalchemy.revisions import Phase
from tests.fixtures.databases import differences

#: the last migration of the previous release
PREVIOUS = '0013'
LATER = [each.revision for each in revisions.known() if each.revision > PREVIOUS]

pytestmark = pytest.mark.migrations


def shape(database):
    """Returns what services rely on: columns with their types, constraints."""
    inspector = sa.inspect(database.engine)
    return {
        table: {
            'columns': {each['name']: each for each in inspector.get_columns(table)},
            'unique': {
                tuple(each['column_names']) for each in inspector.get_unique_constraints(table)
            }
            | {
                tuple(each['column_names'])
                for each in inspector.get_indexes(table)
                if each['unique']
            },
            'foreign': {
                (tuple(each['constrained_columns']), each['referred_table'])
                for each in inspector.get_foreign_keys(table)
            },
        }
        for table in inspector.get_table_names()
    }


def is_optional(column):
    return column['nullable'] or column['default'] is not None


@pytest.mark.parametrize('revision', LATER)
def test_a_migration_says_when_it_runs_and_removes_nothing_before(database, revision):
    script = next(each for each in revisions.known() if each.revision == revision)
    assert script.phase is not None, (
        f'Migration {revision} must say phase = "expand" (services of the previous release can use '
        'the schema afterwards) or "contract".'
    )
    if revisions.phase_of(script) is Phase.CONTRACT:
        return
    migration.upgrade(database, script.down_revision)
    before = shape(database)
    migration.upgrade(database, revision)
    after = shape(database)
    for table, was in before.items():
        if table in (revisions.VERSION_TABLE, revisions.FLOOR_TABLE):
            continue
        now = after[table]
        for name, column in was['columns'].items():
            kept = now['columns'][name]
            assert (str(kept['type']), kept['nullable']) == (
                str(column['type']),
                column['nullable'],
            ), f'{table}.{name}'
        for name in now['columns'].keys() - was['columns'].keys():
            assert is_optional(now['columns'][name]), (
                f'A service of the previous release does not fill {table}.{name}: it must have a '
                'server default or allow NULL.'
            )
        assert now['unique'] == was['unique'] and now['foreign'] >= was['foreign'], table


def test_migrations_that_contract_come_last():
    phases = [revisions.phase_of(each) for each in revisions.known() if each.revision > PREVIOUS]
    assert phases == sorted(phases, key=[Phase.EXPAND, Phase.CONTRACT].index)


@pytest.fixture
def phases(monkeypatch):
    """Pretends that migrations have these phases, by revision."""
    pretended = {}
    real = revisions.phase_of
    monkeypatch.setattr(
        revisions, 'phase_of', lambda each: pretended.get(each.revision) or real(each)
    )
    return pretended


def test_an_expanded_schema_is_one_that_the_previous_release_takes_for_its_own(database):
    # given a database of the previous release, which keeps its revision in one table
    migration.upgrade(database, PREVIOUS)
    with database.engine.begin() as connection:
        connection.execute(sa.text(f'DROP TABLE {revisions.VERSION_TABLE}'))
    assert revisions.version(database) == PREVIOUS
    # when it is expanded
    migration.expand(database)
    # then it has all that this release needs, and where the previous one looks nothing has changed
    assert revisions.version(database) == revisions.head()
    assert revisions.obstacle(database) is None
    with database.engine.connect() as connection:
        found = connection.execute(sa.text('SELECT version_num FROM alembic_version')).scalars()
        assert list(found) == [PREVIOUS]
    assert differences(database) == []


def test_what_contracts_waits_until_it_is_asked_for(database, phases):
    phases |= {'0013': Phase.EXPAND, '0014': Phase.CONTRACT} | dict.fromkeys(LATER, Phase.CONTRACT)
    migration.upgrade(database, '0012')
    with pytest.raises(errors.ConfigError, match='0013 expands.*--expand'):
        migration.contract(database)
    assert 'run cyborg-dbsync upgrade' in revisions.obstacle(database)
    migration.expand(database)
    assert (revisions.version(database), revisions.floor(database)) == ('0013', '0012')
    assert revisions.obstacle(database) is None
    migration.contract(database)
    assert revisions.version(database) == revisions.floor(database) == revisions.head()


@pytest.mark.parametrize('change', [migration.expand, migration.contract])
def test_an_empty_database_is_neither_expanded_nor_contracted(database, change):
    with pytest.raises(errors.ConfigError, match='is empty: run cyborg-dbsync upgrade[.]'):
        change(database)


def test_an_unfinished_upgrade_of_an_earlier_release_is_finished_first(database, phases):
    phases |= {'0013': Phase.CONTRACT, '0014': Phase.EXPAND}
    migration.upgrade(database, '0012')
    with pytest.raises(errors.ConfigError, match='0013 contracts'):
        migration.expand(database)
    assert revisions.version(database) == '0012'


def pretend_later(database, revision, floor):
    with database.engine.begin() as connection:
        for table, number in ((revisions.VERSION_TABLE, revision), (revisions.FLOOR_TABLE, floor)):
            connection.execute(
                sa.text(f'UPDATE {table} SET version_num = :number'), {'number': number}
            )


@pytest.mark.parametrize(
    'change',
    [
        migration.upgrade,
        migration.expand,
        migration.contract,
        migration.create_schema,
        lambda database: migration.stamp(database, 'head'),
        revisions.require_head,
    ],
)
def test_nothing_is_written_into_a_database_of_the_upstream_service(database, change):
    with database.engine.begin() as connection:
        connection.execute(sa.text('CREATE TABLE alembic_version (version_num VARCHAR(32))'))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('b47c8f2d1e3a')"))
    with pytest.raises(errors.ConfigError, match='belongs to another service.*b47c8f2d1e3a'):
        change(database)
    assert sa.inspect(database.engine).get_table_names() == ['alembic_version']


def test_a_schema_of_an_earlier_release_is_not_taken_for_a_new_one(database):
    migration.upgrade(database, '0012')
    with pytest.raises(errors.ConfigError, match='at 0012: run cyborg-dbsync upgrade[.]'):
        migration.create_schema(database)
    assert revisions.version(database) == '0012'
    migration.upgrade(database)
    migration.create_schema(database)


def test_a_later_release_that_only_added_to_the_schema_does_not_stop_this_one(database):
    migration.upgrade(database)
    pretend_later(database, '9999', revisions.head())
    assert revisions.obstacle(database) is None
    revisions.require_head(database)


def test_a_later_release_that_removed_something_stops_this_one(database):
    migration.upgrade(database)
    pretend_later(database, '9999', '9998')
    with pytest.raises(errors.ConfigError, match='9999, of a later release, which has removed'):
        revisions.require_head(database)


# -- online migrations -----------------------------------------------------------------------


class Rows:
    """Some agents, whose ``cyborg_release`` a migration has to fill."""

    def __init__(self, number):
        self.number = number

    def add(self, session):
        for index in range(self.number):
            session.add(
                models.Agent(
                    uuid=str(index),
                    hostname=f'compute{index}',
                    last_heartbeat=clock.now(),
                    sequence=1,
                    digest='',
                    is_ready=True,
                    drivers=[],
                    conflicts={},
                )
            )


OLD = models.Agent.cyborg_release.is_(None)


def count(session):
    return session.scalar(sa.select(sa.func.count()).select_from(models.Agent).where(OLD))


def fill(session, most):
    ids = session.scalars(sa.select(models.Agent.id).where(OLD).limit(most)).all()
    session.execute(
        sa.update(models.Agent).where(models.Agent.id.in_(ids)).values(cyborg_release='old')
    )
    return len(ids)


def fail(session, most):
    raise RuntimeError('no such luck')


@pytest.fixture
def migrate(database, monkeypatch):
    """Runs the command over 120 rows with these migrations."""
    migration.upgrade(database)
    with database.writer() as session:
        Rows(120).add(session)

    def run(*functions, most=None):
        made = tuple(OnlineMigration(each.__name__, count, each) for each in functions)
        monkeypatch.setattr(online_migrations, 'MIGRATIONS', made)
        options = type('Options', (), {'max_count': most})
        return dbsync.online_data_migrations(database, options)

    return run


def test_without_a_limit_everything_is_migrated(migrate, database, capsys):
    assert migrate(fill) == 0
    assert capsys.readouterr().out == (
        'fill: 120 of 120 rows migrated.\nNothing is left to migrate.\n'
    )
    assert online_migrations.left(database) == {}


def test_with_a_limit_the_command_asks_to_be_run_until_nothing_is_left(migrate, capsys):
    assert [migrate(fill, most=70) for _ in range(3)] == [1, 0, 0]
    assert 'fill: 70 of 120 rows' in capsys.readouterr().out


def test_a_migration_that_fails_does_not_stop_the_others(migrate, capsys):
    assert migrate(fail, fill, most=200) == 1
    told = capsys.readouterr()
    assert 'fail failed: no such luck' in told.err and 'fill: 120 of 120' in told.out
    assert migrate(fail) == 0  # there are no rows left for it


def test_rows_that_cannot_be_migrated_are_a_failure(migrate, database, capsys):
    assert migrate(fail) == 2 and migrate(fail, most=10) == 2
    assert 'could not be migrated' in capsys.readouterr().err
    assert online_migrations.left(database) == {'fail': 120}


@pytest.mark.parametrize('most', [0, -1])
def test_a_limit_that_is_none_is_refused(migrate, most, capsys):
    assert migrate(fill, most=most) == 127
    assert '--max-count' in capsys.readouterr().err


def test_nothing_is_contracted_before_rows_are_migrated(migrate, database):
    assert migrate(fill, most=70) == 1
    with pytest.raises(errors.ConfigError, match='online_data_migrations: fill: 50'):
        dbsync.upgrade(database, upgrade_options(contract=True))


def upgrade_options(**given):
    return type('Options', (), {'contract': False, 'expand': False, 'revision': None} | given)


@pytest.fixture
def before_the_last(phases):
    """The revision before the last migration, which contracts."""
    phases[revisions.head()] = Phase.CONTRACT
    return revisions.known()[-2].revision


@pytest.mark.parametrize('present', [None, PREVIOUS])
def test_an_upgrade_in_one_step_migrates_rows_before_it_contracts(
    database, before_the_last, monkeypatch, present
):
    seen = []

    def migrate(session, most):
        seen.append(revisions.read(session.connection(), revisions.VERSION_TABLE))
        return 1

    made = OnlineMigration('one row', lambda session: 1 - len(seen), migrate)
    monkeypatch.setattr(online_migrations, 'MIGRATIONS', (made,))
    if present is not None:
        migration.upgrade(database, present)
    dbsync.upgrade(database, upgrade_options())
    assert seen == [before_the_last]
    assert revisions.version(database) == revisions.head()
    assert differences(database) == []


def test_an_upgrade_in_one_step_does_not_contract_if_rows_are_left(
    database, before_the_last, monkeypatch, capsys
):
    made = OnlineMigration('one row', lambda session: 1, fail)
    monkeypatch.setattr(online_migrations, 'MIGRATIONS', (made,))
    with pytest.raises(errors.ConfigError, match='online_data_migrations: one row: 1'):
        dbsync.upgrade(database, upgrade_options())
    assert 'one row failed: no such luck' in capsys.readouterr().err
    assert revisions.version(database) == before_the_last
