# SPDX-License-Identifier: Apache-2.0
"""Importing an upstream database where it usually is: on MySQL or MariaDB."""

import argparse
import json
import uuid
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from cyborg.cmd import manage_import
from cyborg.db.sqlalchemy import engine, migration, models
from tests.fixtures.cloud import another_database
from tests.fixtures.databases import AT_HAND, URLS, empty
from tests.fixtures.upstream import PROVIDER, SERVERS, load_sqlite, statements

pytestmark = pytest.mark.migrations


@pytest.fixture
def upstream():
    """The dump on a server; its URL, without a driver, as operators write it."""
    if not URLS['mysql']:
        pytest.skip('CYBORG_TEST_MYSQL_URL names no server')
    url = sa.make_url(another_database(URLS['mysql'], f'upstream_{uuid.uuid4().hex}'))
    server = sa.create_engine(url, poolclass=sa.NullPool)
    with server.begin() as connection:
        for statement in statements():
            connection.exec_driver_sql(statement)
    yield url.set(drivername='mysql').render_as_string(hide_password=False)
    with server.begin() as connection:
        connection.exec_driver_sql(f'DROP DATABASE {url.database}')


@pytest.fixture(params=AT_HAND)
def db(request, tmp_path):
    """The database to import into, on each kind of server at hand."""
    made = engine.Database(URLS[request.param] or f'sqlite:///{tmp_path}/cyborg.db')
    empty(made)
    migration.upgrade(made)
    yield made
    empty(made)
    made.close()


@pytest.fixture
def take_over(db, capsys):
    """The command with these words; returns what it printed as JSON."""
    conf = SimpleNamespace(
        api=SimpleNamespace(extra_accel_keys=[]),
        database=SimpleNamespace(connection=db.engine.url.render_as_string(False)),
    )
    parser = argparse.ArgumentParser()
    manage_import.add_commands(parser.add_subparsers())

    def run(url, *words):
        options = parser.parse_args(['import', '--from', url, '--format', 'json', *words])
        assert options.function(conf, options) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_a_dry_run_prints_the_same_as_for_a_file(take_over, upstream, tmp_path):
    printed = take_over(upstream)
    assert printed == take_over(load_sqlite(tmp_path / 'upstream.db'))
    assert printed['counts']['handles'] == 16 and not printed['applied']


def test_servers_keep_what_they_hold(take_over, upstream, db):
    take_over(upstream, '--yes')
    with db.reader() as session:
        arq = models.ExtArq
        held = sa.select(arq.instance_uuid, sa.func.count()).where(arq.state == 'Bound')
        found = session.execute(held.group_by(arq.instance_uuid)).all()
        [provider] = session.scalars(sa.select(models.Deployable.rp_uuid))
    assert dict(map(tuple, found)) == SERVERS
    assert provider == PROVIDER
    # and a second import finds nothing new
    assert not any(take_over(upstream, '--yes')['counts'].values())
