# SPDX-License-Identifier: Apache-2.0
"""The models and the migrations tell the same story, on every database at hand."""

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import migration, models
from tests.fixtures.databases import differences, empty

pytestmark = pytest.mark.migrations


def test_an_empty_database_is_upgraded_to_what_the_models_say(database):
    migration.upgrade(database)
    assert differences(database) == []
    assert migration.version(database) == migration.head()


def test_upgrading_again_changes_nothing(database):
    migration.upgrade(database)
    migration.upgrade(database)
    assert differences(database) == []


def test_a_schema_made_from_the_models_counts_as_upgraded(database):
    migration.create_schema(database)
    migration.upgrade(database)
    assert migration.version(database) == migration.head()
    assert differences(database) == []


def test_an_empty_database_has_no_version(database):
    assert migration.version(database) is None


def test_check_constraints_are_alike_in_models_and_migrations(database):
    def checks():
        inspector = sa.inspect(database.engine)
        return {(table, check['name']): ''.join(check['sqltext'].split()).replace('`', '')
                for table in sorted(models.Base.metadata.tables)
                for check in inspector.get_check_constraints(table)}
    migration.upgrade(database)
    migrated = checks()
    empty(database)
    migration.create_schema(database)
    assert migrated == checks()
    assert len(migrated) == 5


def test_foreign_keys_are_enforced(database):
    migration.upgrade(database)
    with pytest.raises(Exception, match='(?i)foreign key'), database.writer() as session:
        session.execute(sa.insert(models.ControlPath).values(device_id=1, type='PCI', info={}))


def test_requests_that_an_administrator_bound_go_back_to_their_servers_project(database):
    migration.upgrade(database, '0007')
    now = models.now()
    steps = [('s1', None), ('s1', 'owner'), ('s1', 'admins'), ('s2', 'admins')]
    with database.writer() as session:
        reflected = sa.MetaData()
        reflected.reflect(session.connection(), only=['ext_arqs', 'arq_transitions'])
        arqs, transitions = (reflected.tables[name] for name in ('ext_arqs', 'arq_transitions'))
        session.execute(sa.insert(arqs), [
            {'uuid': uuid, 'instance_uuid': server, 'project_id': project, 'created_at': now,
             'state': 'Bound', 'device_profile_group_id': 0, 'profile_group': '{}',
             'is_prepared': True}
            for uuid, server, project in (('a', 's1', 'admins'), ('b', 's2', 'admins'),
                                          ('c', 's3', 'other'), ('d', None, 'other'))])
        session.execute(sa.insert(transitions), [
            {'arq_uuid': 'x', 'instance_uuid': server, 'project_id': project, 'actor': 'x',
             'event': 'bind', 'to_state': 'Bound', 'created_at': now}
            for server, project in steps])
    migration.upgrade(database)
    with database.reader() as session:
        found = session.execute(sa.select(models.ExtArq.uuid, models.ExtArq.project_id)).all()
        assert dict(map(tuple, found)) == {'a': 'owner', 'b': 'admins', 'c': 'other', 'd': 'other'}
