# SPDX-License-Identifier: Apache-2.0
"""The models and the migrations tell the same story, on every database at hand."""

import datetime

import pytest
import sqlalchemy as sa
from alembic import config, script

from cyborg.db.sqlalchemy import clock, migration, models, revisions
from tests.fixtures.databases import Rows, differences, empty

pytestmark = pytest.mark.migrations


def test_the_revisions_are_those_that_alembic_finds():
    """Services read the scripts without alembic."""
    made = config.Config()
    made.set_main_option('script_location', str(revisions.SCRIPTS))
    found = reversed(list(script.ScriptDirectory.from_config(made).walk_revisions()))
    assert [
        (each.revision, each.down_revision, getattr(each.module, 'phase', None)) for each in found
    ] == [(each.revision, each.down_revision, each.phase) for each in revisions.known()]


def test_an_empty_database_is_upgraded_to_what_the_models_say(database):
    migration.upgrade(database)
    assert differences(database) == []
    assert revisions.version(database) == revisions.head()


def test_upgrading_again_changes_nothing(database):
    migration.upgrade(database)
    migration.upgrade(database)
    assert differences(database) == []


def test_a_schema_made_from_the_models_counts_as_upgraded(database):
    migration.create_schema(database)
    migration.upgrade(database)
    assert revisions.version(database) == revisions.head()
    assert differences(database) == []


def test_an_empty_database_has_no_version(database):
    assert revisions.version(database) is None


def test_check_constraints_are_alike_in_models_and_migrations(database):
    def checks():
        inspector = sa.inspect(database.engine)
        return {
            (table, check['name']): ''.join(check['sqltext'].split()).replace('`', '')
            for table in sorted(models.Base.metadata.tables)
            for check in inspector.get_check_constraints(table)
        }

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
    now = clock.now()
    steps = [('s1', None), ('s1', 'owner'), ('s1', 'admins'), ('s2', 'admins')]
    with database.writer() as session:
        reflected = sa.MetaData()
        reflected.reflect(session.connection(), only=['ext_arqs', 'arq_transitions'])
        arqs, transitions = (reflected.tables[name] for name in ('ext_arqs', 'arq_transitions'))
        session.execute(
            sa.insert(arqs),
            [
                {
                    'uuid': uuid,
                    'instance_uuid': server,
                    'project_id': project,
                    'created_at': now,
                    'state': 'Bound',
                    'device_profile_group_id': 0,
                    'profile_group': '{}',
                    'is_prepared': True,
                }
                for uuid, server, project in (
                    ('a', 's1', 'admins'),
                    ('b', 's2', 'admins'),
                    ('c', 's3', 'other'),
                    ('d', None, 'other'),
                )
            ],
        )
        session.execute(
            sa.insert(transitions),
            [
                {
                    'arq_uuid': 'x',
                    'instance_uuid': server,
                    'project_id': project,
                    'actor': 'x',
                    'event': 'bind',
                    'to_state': 'Bound',
                    'created_at': now,
                }
                for server, project in steps
            ],
        )
    migration.upgrade(database)
    with database.reader() as session:
        found = session.execute(sa.select(models.ExtArq.uuid, models.ExtArq.project_id)).all()
        assert dict(map(tuple, found)) == {'a': 'owner', 'b': 'admins', 'c': 'other', 'd': 'other'}


@pytest.fixture
def before_tasks(database):
    """What each host had to do before it was written down as tasks."""
    migration.upgrade(database, '0012')
    since = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    with database.writer() as session:
        rows = Rows(session)
        device = rows.add('devices', uuid='card', hostname='compute1', status='enabled')
        region = rows.add('deployables', uuid='region', name='region', device_id=device)
        rows.add(
            'deployables',
            uuid='loading',
            rp_uuid='loading',
            name='loading',
            device_id=device,
            program_image='image',
            program_turn=3,
            program_since=since,
            program_request_id='req-1',
        )

        def handle(uuid, is_host_prepared=True, arq=None, **values):
            rows.add(
                'attach_handles',
                uuid=uuid,
                key=uuid,
                type='MDEV',
                info='{}',
                deployable_id=region,
                is_host_prepared=is_host_prepared,
                arq_id=arq,
                **values,
            )

        def arq(uuid, state, is_prepared):
            return rows.add(
                'ext_arqs',
                uuid=uuid,
                state=state,
                is_prepared=is_prepared,
                profile_group='{}',
                instance_uuid='server',
                project_id='project',
                updated_at=since,
            )

        handle('idle', turn=1)
        handle('released', turn=2, cleanup_since=since, work_attempts=4, work_error='why')
        handle('whole', is_host_prepared=False, turn=1, cleanup_since=since)
        handle('started', arq=arq('1', 'BindStarted', False), turn=5)
        handle('prepared', arq=arq('2', 'BindStarted', True), turn=6)
        handle('provisioning', arq=arq('3', 'Provisioning', True), turn=7)
        handle('bound', arq=arq('4', 'Bound', True), turn=8)
        handle('under image', turn=9, is_programming=True)
    return since.replace(tzinfo=datetime.UTC)


def test_what_hosts_had_to_do_becomes_tasks(database, before_tasks):
    migration.upgrade(database)
    assert differences(database) == []
    with database.reader() as session:
        tasks = session.scalars(sa.select(models.Task)).all()
        assert {
            (each.kind, each.handle_uuid, each.generation, each.attempts, each.error)
            for each in tasks
        } == {
            ('release', 'released', 2, 4, 'why'),
            ('prepare', 'started', 5, 0, None),
            ('prepare', 'provisioning', 7, 0, None),
            ('program', None, 0, 0, None),
        }
        assert {(each.state, each.hostname, each.device_uuid) for each in tasks} == {
            ('open', 'compute1', 'card')
        }
        by_kind = {each.kind: each for each in tasks}
        programming = by_kind['program']
        assert (programming.deployable_uuid, programming.image, programming.image_uuid) == (
            'loading',
            {'bitstream_id': 'image'},
            'image',
        )
        assert (programming.request_id, programming.created_at) == ('req-1', before_tasks)
        loading = session.scalars(sa.select(models.Deployable).filter_by(uuid='loading')).one()
        assert loading.program_task_uuid == programming.uuid
        prepared = {each.handle_uuid: each for each in tasks if each.kind == 'prepare'}['started']
        assert (prepared.arq_uuid, prepared.instance_uuid, prepared.project_id) == (
            '1',
            'server',
            'project',
        )
        assert by_kind['release'].created_at == before_tasks


def test_handles_keep_their_generation_and_what_withholds_them(database, before_tasks):
    migration.upgrade(database)
    with database.reader() as session:
        handles = session.execute(
            sa.select(
                models.AttachHandle.uuid,
                models.AttachHandle.generation,
                models.AttachHandle.withheld,
            )
        ).all()
    assert {tuple(each) for each in handles} == {
        ('idle', 1, None),
        ('released', 2, 'cleaning'),
        ('whole', 1, None),
        ('started', 5, None),
        ('prepared', 6, None),
        ('provisioning', 7, None),
        ('bound', 8, None),
        ('under image', 9, 'programming'),
    }


def test_class_traits_and_reserved_count_become_columns(database):
    migration.upgrade(database, '0014')
    with database.writer() as session:
        rows = Rows(session)
        device = rows.add('devices', status='enabled')

        def part(name, *attributes):
            made = rows.add('deployables', uuid=name, name=name, rp_uuid=name, device_id=device)
            last = None
            for number, (key, value, is_users, is_below) in enumerate(attributes):
                last = rows.add(
                    'attributes',
                    uuid=f'{name}{number}',
                    deployable_id=made,
                    parent_attribute_id=last if is_below else None,
                    key=key,
                    value=value,
                    is_users=is_users,
                )

        part(
            'whole',
            ('rc', 'FPGA', False, False),
            ('trait0', 'CUSTOM_B', False, False),
            ('trait1', 'CUSTOM_A', False, False),
            ('reserved', '3', False, False),
            # of the driver, below another one, and of an administrator
            ('traits1', 'CUSTOM_C', False, False),
            ('trait2', 'CUSTOM_D', False, True),
            ('rc', 'GPU', True, False),
            ('trait3', 'CUSTOM_E', True, False),
        )
        part('odd', ('reserved', 'some', False, False))
        part('bare')
    migration.upgrade(database)
    with database.reader() as session:
        found = session.execute(
            sa.select(
                models.Deployable.uuid,
                models.Deployable.resource_class,
                models.Deployable.traits,
                models.Deployable.reserved,
            ).order_by(models.Deployable.id)
        ).all()
        assert [tuple(each) for each in found] == [
            ('whole', 'FPGA', ['CUSTOM_B', 'CUSTOM_A'], 3),
            ('odd', None, [], 0),
            ('bare', None, [], 0),
        ]
        # clients still find them among the attributes
        assert session.scalar(sa.select(sa.func.count()).select_from(models.Attribute)) == 9
    with database.writer() as session:  # SQLite drops no table whose rows refer to each other
        session.execute(sa.update(models.Attribute).values(parent_attribute_id=None))
