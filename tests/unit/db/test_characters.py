# SPDX-License-Identifier: Apache-2.0
"""All of Unicode is stored, however the database was made and whatever its URL says."""

import types

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from cyborg.db.sqlalchemy import engine, migration, models, revisions
from tests.fixtures.databases import AT_HAND, URLS, differences

pytestmark = [
    pytest.mark.migrations,
    pytest.mark.skipif(
        'mysql' not in AT_HAND, reason='needs MariaDB, which make test-services runs'
    ),
]

TEXT = 'é日🚀'
NARROW = sa.text(
    'SELECT table_name, column_name FROM information_schema.columns'
    " WHERE table_schema = DATABASE() AND collation_name != 'utf8mb4_bin'"
)


@pytest.fixture
def url():
    """Of an empty database of three bytes a character, without a charset."""
    server = sa.make_url(URLS['mysql'])
    name = f'{server.database}_utf8mb3'
    made = sa.create_engine(server, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT')
    with made.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE {name} CHARACTER SET utf8mb3')
        yield server.set(database=name, query={})
        connection.exec_driver_sql(f'DROP DATABASE {name}')


@pytest.fixture(params=['?charset=utf8', 'nothing', 'mariadb+pymysql'])
def database(request, url):
    """That database by a URL that does not ask for all characters."""
    match request.param:
        case '?charset=utf8':
            url = url.set(query={'charset': 'utf8'})
        case 'mariadb+pymysql':
            url = url.set(drivername='mariadb+pymysql')
    made = engine.Database(url)
    yield made
    made.close()


def make_narrow_tables(url):
    """As releases before 0012 made them by a URL of MariaDB's own name."""
    narrow = sa.create_engine(url.set(drivername='mariadb+pymysql'), poolclass=sa.NullPool)
    migration.upgrade(types.SimpleNamespace(engine=narrow), '0011')
    with narrow.begin() as connection:
        # those releases had the other table of versions only
        connection.execute(sa.text(f'DROP TABLE {revisions.VERSION_TABLE}'))
        assert connection.execute(NARROW).all()
        connection.execute(
            sa.text(
                'INSERT INTO device_profiles'
                ' (uuid, name, description, `groups`, created_at, is_enabled, is_private)'
                " VALUES ('u', 'old', 'é日', '[]', NOW(), true, false)"
            )
        )


def store_and_read(database):
    with database.writer() as session:
        session.add(models.DeviceProfile(name=TEXT, description=TEXT, groups=[]))
    with database.reader() as session:
        found = session.execute(
            sa.select(models.DeviceProfile.name, models.DeviceProfile.description)
        ).all()
    return dict(map(tuple, found))


@pytest.mark.parametrize('make', [migration.upgrade, migration.create_schema])
def test_new_tables_take_all_characters(database, make):
    make(database)
    assert store_and_read(database) == {TEXT: TEXT}


def test_narrow_tables_are_converted(url, database):
    make_narrow_tables(url)
    migration.upgrade(database)
    with database.reader() as session:
        assert session.execute(NARROW).all() == []
    assert store_and_read(database) == {'old': 'é日', TEXT: TEXT}


def test_columns_keep_their_types_when_they_are_converted(url, database):
    def columns():
        with database.reader() as session:
            return session.execute(
                sa.text(
                    'SELECT table_name, column_name, column_type, is_nullable, column_default'
                    ' FROM information_schema.columns WHERE table_schema = DATABASE()'
                    f" AND table_name != '{revisions.VERSION_TABLE}'"
                    ' ORDER BY table_name, ordinal_position'
                )
            ).all()

    make_narrow_tables(url)
    before = columns()
    migration.upgrade(database, '0012')
    assert columns() == before
    migration.upgrade(database)
    assert differences(database) == []


def test_what_is_there_already_is_told_whatever_the_url_calls_the_server(database):
    migration.upgrade(database)
    store_and_read(database)
    with pytest.raises(db_exc.DBDuplicateEntry):
        store_and_read(database)
