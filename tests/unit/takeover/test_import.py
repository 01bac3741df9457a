# SPDX-License-Identifier: Apache-2.0
"""Importing an upstream database, and the notes for its operator."""

import argparse
import json
import uuid
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from cyborg import errors
from cyborg.clients import keystone
from cyborg.cmd import manage_import
from cyborg.db.sqlalchemy import engine, migration, models
from cyborg.objects import HandleType, Withheld
from tests.fixtures.upstream import PROVIDER, SERVERS, Upstream

CARD = '0000:3b:00.0'
PROFILES = 'SELECT uuid FROM device_profiles ORDER BY id'


def made(name):
    """A uuid that tests can say again."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


@pytest.fixture
def upstream(tmp_path):
    return Upstream(tmp_path / 'upstream.db')


@pytest.fixture
def take_over(db, upstream, capsys):
    """The command with these words; returns what it printed as JSON."""
    conf = SimpleNamespace(
        api=SimpleNamespace(extra_accel_keys=[]),
        database=SimpleNamespace(connection=db.engine.url.render_as_string(False)),
    )
    parser = argparse.ArgumentParser()
    manage_import.add_commands(parser.add_subparsers())

    def run(*words, url=None):
        words = ['import', '--from', url or upstream.url, '--yes', '--format', 'json', *words]
        options = parser.parse_args(words)
        assert options.function(conf, options) == 0
        return json.loads(capsys.readouterr().out)

    return run


def only(db, model, **values):
    with db.reader() as session:
        return session.scalars(sa.select(model).filter_by(**values)).one()


def note_about(printed, *words):
    return [note for note in printed['notes'] if all(word in note for word in words)]


def test_a_deadlock_repeats_the_import(take_over, monkeypatch):
    content, deadlocks = manage_import.import_content, [db_exc.DBDeadlock()]

    def import_content(*arguments):
        outcome = content(*arguments)
        if deadlocks:
            raise deadlocks.pop()
        return outcome

    monkeypatch.setattr(manage_import, 'import_content', import_content)
    assert all(take_over()['counts'].values())
    assert not deadlocks
    assert not any(take_over()['counts'].values())  # all of it is known


# -- profiles ----------------------------------------------------------------------------------


def test_a_name_that_is_not_valid_here_is_mapped_and_told(db, upstream, take_over):
    upstream.execute("UPDATE device_profiles SET name = 'my gpu/1' WHERE id = 1")
    upstream.execute("UPDATE device_profiles SET name = 'my gpu.1' WHERE id = 2")
    printed = take_over()
    names = [each['imported_as'] for each in printed['profiles']]
    assert names[:2] == ['my_gpu_1', 'my_gpu_1_89eb6820']
    assert note_about(printed, "'my gpu/1'", 'becomes my_gpu_1:')


def test_a_name_that_is_valid_here_stays_with_its_profile(db, upstream, take_over):
    # given rows before the owner of a name that would be mapped to it
    upstream.execute("UPDATE device_profiles SET name = 'my gpu' WHERE id = 1")
    upstream.execute("UPDATE device_profiles SET name = 'my.gpu' WHERE id = 2")
    upstream.execute("UPDATE device_profiles SET name = 'my_gpu' WHERE id = 3")
    [first, second, owner] = [uuid for (uuid,) in upstream.execute(PROFILES)][:3]
    printed = take_over()
    assert only(db, models.DeviceProfile, name='my_gpu').uuid == owner
    names = [each['imported_as'] for each in printed['profiles']]
    assert names[:3] == [f'my_gpu_{first[:8]}', f'my_gpu_{second[:8]}', 'my_gpu']
    assert not note_about(printed, owner, 'becomes my_gpu')
    assert not take_over()['profiles']


def test_a_name_is_not_taken_from_a_profile_that_an_earlier_import_brought(db, upstream, take_over):
    upstream.execute("UPDATE device_profiles SET name = 'my gpu' WHERE id = 1")
    take_over()
    upstream.execute(
        'INSERT INTO device_profiles (uuid, name, profile_json) '
        "SELECT ?, 'my_gpu', profile_json FROM device_profiles WHERE id = 2",
        made('owner'),
    )
    printed = take_over()
    # the name is in use here, and flavors were changed to it
    assert only(db, models.DeviceProfile, name='my_gpu').uuid != made('owner')
    assert [each['imported_as'] for each in printed['profiles']] == [f'my_gpu_{made("owner")[:8]}']
    assert note_about(printed, "'my_gpu'", 'Change the flavors')


def test_a_name_with_digits_of_the_uuid_may_be_taken_too(db, upstream, take_over):
    [first, second] = [uuid for (uuid,) in upstream.execute(PROFILES)][:2]
    upstream.execute("UPDATE device_profiles SET name = 'my gpu' WHERE id = 1")
    with db.writer() as session:
        for name in ('my_gpu', f'my_gpu_{first[:8]}_2'):
            session.add(models.DeviceProfile(name=name, groups=[{'resources:PGPU': '1'}]))
    # and one of the upstream service has the other name
    upstream.execute('UPDATE device_profiles SET name = ? WHERE id = 2', f'my_gpu_{first[:8]}')
    take_over()
    assert only(db, models.DeviceProfile, uuid=first).name == f'my_gpu_{first[:8]}_3'
    assert only(db, models.DeviceProfile, uuid=second).name == f'my_gpu_{first[:8]}'


def test_a_mapped_name_has_no_more_than_255_characters(db, upstream, take_over):
    upstream.execute('UPDATE device_profiles SET name = ? WHERE id = 1', '.' * 300)
    upstream.execute('UPDATE device_profiles SET name = ? WHERE id = 2', '_' * 255)
    [first, second] = [uuid for (uuid,) in upstream.execute(PROFILES)][:2]
    take_over()
    assert only(db, models.DeviceProfile, uuid=first).name == '_' * 247 + first[:8]
    assert only(db, models.DeviceProfile, uuid=second).name == '_' * 255


def test_groups_are_spelled_as_here_and_old_classes_replaced(db, take_over):
    printed = take_over()
    assert only(db, models.DeviceProfile, name='old-lower').groups == [
        {'resources:FPGA': '1', 'trait:CUSTOM_FUNCTION_ID_3AFB': 'required'}
    ]
    assert note_about(printed, 'resources:CUSTOM_ACCELERATOR_FPGA becomes resources:FPGA')


def test_an_old_class_that_a_device_offers_stays(db, upstream, take_over):
    upstream.execute("UPDATE attributes SET value = 'CUSTOM_ACCELERATOR_FPGA' WHERE `key` = 'rc'")
    take_over()
    [group] = only(db, models.DeviceProfile, name='old-lower').groups
    assert 'resources:CUSTOM_ACCELERATOR_FPGA' in group


def test_other_names_are_mapped_as_the_operator_says(db, take_over):
    take_over('--map', 'CUSTOM_FPGA_INTEL=CUSTOM_FPGA_OTHER')
    [group] = only(db, models.DeviceProfile, name='afu-by-function').groups
    assert group['trait:CUSTOM_FPGA_OTHER'] == 'required'


@pytest.mark.parametrize(
    'groups',
    ['{"groups": [{"resources:NO_SUCH": "1"}]}', '{"groups": [{}]}', 'no json', '{}', '[1]'],
)
def test_a_profile_that_is_not_valid_here_is_disabled_and_keeps_its_requests(
    db, upstream, take_over, groups
):
    upstream.execute('UPDATE device_profiles SET profile_json = ? WHERE id = 1', groups)
    printed = take_over()
    assert note_about(printed, 'fpga-one', 'disabled')
    assert only(db, models.DeviceProfile, name='fpga-one').is_enabled is False
    assert sum(each['imported_as'] == 'Bound' for each in printed['requests']) == 5


def test_a_profile_that_is_here_already_is_used(db, upstream, take_over):
    group = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
    with db.writer() as session:
        session.add(models.DeviceProfile(name='fpga-one', groups=[group]))
        session.add(models.DeviceProfile(name='fpga-two-groups', groups=[group]))
    printed = take_over()
    assert note_about(printed, 'fpga-one', 'is here already')
    assert {each['imported_as'] for each in printed['profiles']} == {
        'fpga-two-groups_89eb6820',
        'afu-by-function',
        'old-lower',
    }
    assert len(printed['requests']) == 6


def test_a_later_request_gets_the_profile_that_was_here_already(db, upstream, take_over):
    group = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
    with db.writer() as session:
        session.add(models.DeviceProfile(name='fpga-one', groups=[group]))
    take_over()
    with db.writer() as session:
        session.scalars(sa.select(models.DeviceProfile).filter_by(name='fpga-one')).one().name = 'x'
    upstream.add_bound(made('arq'), 6, PROVIDER, made('server'))
    printed = take_over()
    assert not note_about(printed, made('arq'))
    row = only(db, models.ExtArq, uuid=made('arq'))
    assert row.device_profile_name == 'x' and row.group == group


# -- devices and handles -----------------------------------------------------------------------


def test_a_device_in_trouble_is_imported_disabled(db, upstream, take_over):
    upstream.execute("UPDATE devices SET device_state = 'error'")
    assert note_about(take_over(), 'state error', 'disabled')
    assert only(db, models.Device).status == 'maintaining'


def test_two_devices_at_one_address_are_told(upstream, take_over):
    upstream.add_device(made('a'), CARD)
    upstream.add_device(made('b'), CARD)
    assert note_about(take_over(), made('a'), made('b'), CARD)


def test_two_deployables_of_one_provider_become_one(db, upstream, take_over):
    device = upstream.add_device(made('a'), CARD)
    part = upstream.add_deployable(made('part'), device, CARD, PROVIDER, 'PGPU')
    handle = upstream.add_handle(made('handle'), part, CARD)
    upstream.add_bound(made('arq'), handle, PROVIDER, made('server'))
    assert note_about(take_over(), made('part'), PROVIDER)
    with db.reader() as session:
        [row] = session.scalars(sa.select(models.Deployable))
        assert made('handle') in {each.uuid for each in row.attach_handles}


def test_a_later_handle_of_a_merged_deployable_gets_to_the_one_that_is_left(
    db, upstream, take_over
):
    device = upstream.add_device(made('a'), CARD)
    part = upstream.add_deployable(made('part'), device, CARD, PROVIDER, 'PGPU')
    child = upstream.add_deployable(made('child'), device, 'child', made('rp'), 'PGPU')
    upstream.execute('UPDATE deployables SET parent_id = ? WHERE id = ?', part, child)
    take_over()
    handle = upstream.add_handle(made('handle'), part, CARD)
    upstream.add_bound(made('arq'), handle, PROVIDER, made('server'))
    printed = take_over()
    assert not note_about(printed, made('handle')) and not note_about(printed, made('arq'))
    with db.reader() as session:
        [row] = session.scalars(sa.select(models.AttachHandle).filter_by(uuid=made('handle')))
        assert row.deployable.rp_uuid == PROVIDER and row.arq.uuid == made('arq')
        [below] = session.scalars(sa.select(models.Deployable).filter_by(uuid=made('child')))
        assert below.parent is row.deployable


def test_handles_that_are_new_after_a_report_become_those_at_their_place(db, upstream, take_over):
    device = upstream.add_device(made('a'), CARD)
    part = upstream.add_deployable(made('part'), device, CARD, made('rp'), 'VGPU')
    upstream.add_handle(made('first'), part, CARD, 'MDEV', asked_type='t', vgpu_mark='t_0')
    take_over()
    with db.writer() as session:  # as a report does: four vGPUs, of which the first was imported
        [row] = session.scalars(sa.select(models.Device).filter_by(uuid=made('a')))
        row.is_imported = row.deployables[0].is_imported = False
        [first] = row.deployables[0].attach_handles
        first.key = '0'
        row.deployables[0].attach_handles += [
            models.AttachHandle(
                key=str(number),
                type=HandleType.MDEV,
                info=first.info | {'vgpu_mark': f't_{number}'},
            )
            for number in (1, 2, 3)
        ]
    # when the upstream service has two more, and has replaced the first
    for name, mark in (('third', 't_2'), ('second', 't_9')):
        handle = upstream.add_handle(made(name), part, CARD, 'MDEV', asked_type='t', vgpu_mark=mark)
        upstream.add_bound(made(f'arq {name}'), handle, made('rp'), made('server'))
    upstream.execute(
        'UPDATE attach_handles SET uuid = ? WHERE uuid = ?', made('new'), made('first')
    )
    take_over()
    take_over()
    with db.reader() as session:
        [row] = session.scalars(sa.select(models.Device).filter_by(uuid=made('a')))
        handles = {each.uuid: each for each in row.deployables[0].attach_handles}
        assert len(handles) == 4
        assert handles[made('third')].key == '2' and handles[made('new')].key == '0'
        held = {uuid for uuid, each in handles.items() if each.arq is not None}
        assert held == {made('second'), made('third')}


def test_a_handle_in_use_without_a_request_is_quarantined(db, upstream, take_over):
    upstream.execute('UPDATE attach_handles SET in_use = 1 WHERE id = 9')
    [note] = note_about(take_over(), 'marked it as in use')
    assert only(db, models.AttachHandle, withheld=Withheld.QUARANTINED).uuid in note
    assert only(db, models.Task).state == 'quarantined'


@pytest.mark.parametrize('state', ['BindStarted', 'BindFailed', 'Deleting'])
def test_a_handle_in_use_of_a_request_that_is_not_bound_is_quarantined(
    db, upstream, take_over, state
):
    upstream.execute('UPDATE extended_accelerator_requests SET state = ? WHERE id = 2', state)
    printed = take_over()
    [(handle,)] = upstream.execute('SELECT uuid FROM attach_handles WHERE id = 1')
    assert note_about(printed, handle, 'is quarantined')
    row = only(db, models.AttachHandle, uuid=handle)
    assert row.withheld == Withheld.QUARANTINED and row.arq_id is None
    assert only(db, models.Task).handle_uuid == handle
    [shown] = [each for each in printed['handles'] if each['uuid'] == handle]
    assert shown['held'] is False


def test_a_new_handle_whose_request_was_bound_after_its_import_is_quarantined(
    db, upstream, take_over
):
    upstream.execute("UPDATE extended_accelerator_requests SET state = 'BindFailed' WHERE id = 2")
    upstream.execute('UPDATE attach_handles SET in_use = 0 WHERE id = 1')
    take_over()
    handle = upstream.add_handle(made('handle'), 1, CARD, in_use=1)
    upstream.execute(
        "UPDATE extended_accelerator_requests SET state = 'Bound', attach_handle_id = ? "
        'WHERE id = 2',
        handle,
    )
    assert note_about(take_over(), made('handle'), 'is quarantined')


@pytest.fixture
def free_handle(upstream):
    """The number of a handle, and a request that is imported before the upstream service binds it
    to the handle."""
    handle = upstream.add_handle(made('handle'), 1, CARD)
    upstream.add(
        'extended_accelerator_requests',
        uuid=made('arq'),
        project_id='p',
        state='Initial',
        substate='Initial',
        device_profile_id=1,
        device_profile_group_id=0,
    )

    def bind():
        upstream.execute('UPDATE attach_handles SET in_use = 1 WHERE id = ?', handle)
        upstream.execute(
            "UPDATE extended_accelerator_requests SET state = 'Bound', attach_handle_id = ?, "
            'instance_uuid = ? WHERE uuid = ?',
            handle,
            made('server'),
            made('arq'),
        )

    return bind


def test_a_handle_whose_request_was_bound_after_its_import_is_quarantined(
    db, upstream, take_over, free_handle
):
    take_over()
    free_handle()
    [note] = note_about(take_over(), made('handle'))
    assert made('server') in note and 'is quarantined' in note
    assert only(db, models.AttachHandle, uuid=made('handle')).withheld == Withheld.QUARANTINED
    # when an operator has offered it again, a further import leaves it so
    with db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(withheld=None))
    assert not note_about(take_over(), made('handle'))
    assert only(db, models.AttachHandle, uuid=made('handle')).withheld is None


def test_a_handle_that_both_services_have_bound_is_told(db, upstream, take_over, free_handle):
    take_over()
    free_handle()
    other = models.ExtArq(
        uuid=made('mine'), state='Bound', device_profile_group_id=0, group={}, project_id='p'
    )
    with db.writer() as session:
        session.add(other)
        session.flush()
        session.execute(
            sa.update(models.AttachHandle)
            .where(models.AttachHandle.uuid == made('handle'))
            .values(arq_id=other.id)
        )
    [note] = note_about(take_over(), made('handle'))
    assert made('mine') in note and made('server') in note and 'Stop one' in note


def test_a_quarantined_handle_that_a_bound_request_holds_later_is_not_cleaned(
    db, upstream, take_over
):
    handle = upstream.add_handle(made('handle'), 1, CARD, in_use=1)
    take_over()
    upstream.add_bound(made('arq'), handle, PROVIDER, made('server'))
    take_over()
    row = only(db, models.AttachHandle, uuid=made('handle'))
    assert row.withheld is None and row.arq_id is not None
    assert only(db, models.Task).state == 'failed'


def test_a_handle_without_readable_info_stays_with_its_request(db, upstream, take_over):
    upstream.execute("UPDATE attach_handles SET attach_info = '{broken' WHERE id = 1")
    assert note_about(take_over(), 'is not JSON')
    with db.reader() as session:
        [row] = session.scalars(
            sa.select(models.AttachHandle).where(models.AttachHandle.arq_id.is_not(None)).limit(1)
        )
        assert row.info == {} and row.arq.state == 'Bound'


def test_a_mediated_device_is_one_that_the_host_prepares(db, upstream, take_over):
    device = upstream.add_device(made('a'), CARD)
    part = upstream.add_deployable(made('part'), device, CARD, made('rp'), 'VGPU')
    upstream.add_handle(made('handle'), part, CARD, 'MDEV', asked_type='nvidia-35')
    take_over()
    row = only(db, models.AttachHandle, uuid=made('handle'))
    assert row.type == HandleType.MDEV and row.is_host_prepared


# -- requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize('state', ['Initial', 'Unbound'])
def test_a_request_that_is_not_bound_holds_nothing(db, upstream, take_over, state):
    upstream.execute('UPDATE extended_accelerator_requests SET state = ? WHERE id = 2', state)
    upstream.execute('UPDATE attach_handles SET in_use = 0 WHERE id = 1')
    printed = take_over()
    assert printed['requests'][1]['imported_as'] == state
    row = only(db, models.ExtArq, uuid=printed['requests'][1]['uuid'])
    assert row.state == state and row.instance_uuid is None


@pytest.mark.parametrize('state', ['BindStarted', 'BindFailed', 'UnbindFailed'])
def test_a_request_that_failed_keeps_its_server_and_holds_nothing(db, upstream, take_over, state):
    upstream.execute('UPDATE extended_accelerator_requests SET state = ? WHERE id = 2', state)
    [place] = upstream.execute(
        'SELECT hostname, device_rp_uuid, instance_uuid FROM extended_accelerator_requests '
        'WHERE id = 2'
    )
    printed = take_over()
    shown = printed['requests'][1]
    assert shown['imported_as'] == 'BindFailed' and shown['handle'] is None
    row = only(db, models.ExtArq, uuid=shown['uuid'])
    assert row.state == 'BindFailed'
    assert (row.hostname, row.device_rp_uuid, row.instance_uuid) == place
    # and the operator is told when the state is another one, with the reason
    notes = note_about(printed, row.uuid, 'becomes BindFailed')
    assert len(notes) == (state != 'BindFailed')
    assert all(row.reason in note for note in notes)


def test_a_request_that_failed_to_unbind_and_has_no_server_is_unbound(db, upstream, take_over):
    upstream.execute(
        "UPDATE extended_accelerator_requests SET state = 'UnbindFailed', hostname = NULL, "
        'device_rp_uuid = NULL, instance_uuid = NULL WHERE id = 2'
    )
    printed = take_over()
    assert printed['requests'][1]['imported_as'] == 'Unbound'
    assert note_about(printed, 'becomes Unbound', 'failed to release its attach handle')


def test_a_request_that_is_being_deleted_is_left_out(upstream, take_over):
    upstream.execute("UPDATE extended_accelerator_requests SET state = 'Deleting' WHERE id = 2")
    printed = take_over()
    assert len(printed['requests']) == 5
    assert note_about(printed, 'left out', 'being deleted')


def test_no_bound_request_is_lost_that_has_no_handle_of_its_own(db, upstream, take_over):
    upstream.execute(
        'UPDATE extended_accelerator_requests SET attach_handle_id = NULL WHERE id = 2'
    )
    upstream.execute('UPDATE extended_accelerator_requests SET attach_handle_id = 3 WHERE id = 3')
    printed = take_over()
    assert sum(each['imported_as'] == 'Bound' for each in printed['requests']) == 5
    assert note_about(printed, 'without an attach handle')
    assert note_about(printed, 'both hold attach handle')


def test_the_history_of_a_request_begins_with_the_import(db, take_over):
    take_over()
    with db.reader() as session:
        steps = session.scalars(sa.select(models.ArqTransition)).all()
    assert len(steps) == 6
    assert {step.reason for step in steps} == {'Imported from the database of another service.'}


def test_a_request_that_has_changed_since_is_told(upstream, take_over):
    take_over()
    upstream.execute("UPDATE extended_accelerator_requests SET state = 'Unbound' WHERE id = 2")
    printed = take_over()
    assert note_about(printed, 'was Bound', 'is Unbound', 'stays Bound')
    assert not any(printed['counts'].values())


@pytest.fixture
def nova(monkeypatch):
    """What Nova answers to the import: an error, or the projects of servers."""
    answer = SimpleNamespace(projects={}, error=None)

    class Nova:
        def __init__(self, service):
            pass

        def projects_of(self, servers):
            if answer.error:
                raise answer.error
            return {each: answer.projects[each] for each in servers if each in answer.projects}

    monkeypatch.setattr(keystone, 'connect', lambda conf, section: None)
    monkeypatch.setattr(manage_import, 'Nova', Nova)
    return answer


@pytest.mark.parametrize(
    'statement',
    [
        'UPDATE extended_accelerator_requests SET project_id = NULL',
        'ALTER TABLE extended_accelerator_requests DROP COLUMN project_id',
    ],
)
def test_a_bound_request_without_a_project_gets_that_of_its_server(
    db, upstream, take_over, nova, statement
):
    upstream.execute(statement)
    nova.projects = dict.fromkeys(SERVERS, 'owner')
    assert not note_about(take_over(), 'no project')
    with db.reader() as session:
        found = session.scalars(sa.select(models.ExtArq).filter_by(state='Bound')).all()
        assert [arq.project_id for arq in found] == ['owner'] * 5


@pytest.mark.parametrize(
    'error, words',
    [
        (errors.Unavailable('Nova answered 503.'), '503. Correct that, and run the import again.'),
        (errors.ConfigError(why='[nova] auth_type is not set'), 'is not set. Correct that'),
        (None, 'Nova does not know the server'),
    ],
)
def test_a_bound_request_is_told_whose_project_nova_does_not_say(
    db, upstream, take_over, nova, error, words
):
    upstream.execute('UPDATE extended_accelerator_requests SET project_id = NULL WHERE id = 2')
    nova.error = error
    [request] = upstream.execute(
        'SELECT uuid, instance_uuid FROM extended_accelerator_requests WHERE id = 2'
    )
    printed = take_over()
    assert len(note_about(printed, 'no project', words, *request)) == 1
    assert len(note_about(printed, 'no project')) == 1


def test_another_import_fills_in_the_projects_that_were_not_known(db, upstream, take_over, nova):
    upstream.execute('UPDATE extended_accelerator_requests SET project_id = NULL')
    assert len(note_about(take_over(), 'no project')) == 5
    nova.projects = dict.fromkeys(SERVERS, 'owner')
    printed = take_over()
    assert {each['project'] for each in printed['completed']} == {'owner'}
    assert len(printed['completed']) == 5 and not printed['notes'][1:]
    with db.reader() as session:
        for model in (models.ExtArq, models.ArqTransition):
            found = session.scalars(sa.select(model.project_id)).all()
            assert sorted(map(str, found)) == ['None', *['owner'] * 5]
    nova.error = errors.Unavailable('Nova answered 503.')
    printed = take_over()
    assert printed['completed'] == [] and not note_about(printed, 'no project')


# -- which databases ---------------------------------------------------------------------------


def test_an_older_schema_with_all_that_is_needed_is_read(upstream, take_over):
    upstream.execute("UPDATE alembic_version SET version_num = 'older'")
    upstream.execute('ALTER TABLE devices DROP COLUMN device_state')
    upstream.execute('ALTER TABLE devices DROP COLUMN status')
    printed = take_over()
    assert printed['schema'] == 'older'
    assert printed['lacking'] == ['devices.device_state', 'devices.status']
    assert printed['counts']['requests'] == 6


@pytest.mark.parametrize(
    'change, words',
    [
        ('ALTER TABLE deployables DROP COLUMN rp_uuid', 'lacks deployables.rp_uuid; upgrade it'),
        ('ALTER TABLE devices ADD COLUMN colour text', 'devices.colour; it belongs to a release'),
        ('DROP TABLE attributes', 'lacks attributes.deployable_id'),
        ('DELETE FROM alembic_version', 'does not say which schema'),
    ],
)
def test_other_schemas_are_refused(upstream, take_over, change, words):
    upstream.execute(change)
    with pytest.raises(errors.ConfigError, match=words):
        take_over()


@pytest.mark.parametrize(
    'url, words',
    [
        ('nonsense', 'is not the URL of a database'),
        ('oddsql://a/b', 'kind of database that is not known, oddsql'),
        ('mysql+aiomysql://a/b', 'needs the Python module aiomysql'),
        ('sqlite:////nowhere/at/all.db', 'cannot be opened: No such file'),
        ('mysql://u:secret@127.0.0.1:1/cyborg', 'cannot be read: .*Check host'),
        ('postgresql://u:secret@127.0.0.1:1/cyborg', 'cannot be read: .*Check host'),
    ],
)
def test_a_database_that_cannot_be_read_is_told_in_a_sentence(take_over, url, words):
    with pytest.raises(errors.ConfigError, match=words) as raised:
        take_over(url=url)
    assert 'secret' not in str(raised.value) and '\n' not in str(raised.value)


def test_our_own_database_is_refused(db, take_over, tmp_path):
    with pytest.raises(errors.ConfigError, match='which is the one to import into'):
        take_over(url=str(db.engine.url))
    other = engine.Database(f'sqlite:///{tmp_path}/other.db')
    migration.create_schema(other)
    other.close()
    with pytest.raises(errors.ConfigError, match='is one of this service'):
        take_over(url=f'sqlite:///{tmp_path}/other.db')


def test_a_database_without_tables_is_refused(take_over, tmp_path):
    (tmp_path / 'empty.db').touch()
    with pytest.raises(errors.ConfigError, match='has no tables of Cyborg'):
        take_over(url=f'sqlite:///{tmp_path}/empty.db')
