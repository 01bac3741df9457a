# SPDX-License-Identifier: Apache-2.0
"""A cloud that the upstream service managed is taken over: servers keep what they hold."""

import argparse
import json
import uuid

import pytest
import sqlalchemy as sa

from cyborg.clients import keystone
from cyborg.cmd import manage_hosts, manage_import
from cyborg.conductor.audit import Audit
from cyborg.conductor.engine import quarantine
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.history import Cause
from cyborg.sim import nova as sim_nova
from tests.fixtures import upstream as left
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost
from tests.fixtures.persons import Person, trusting_cloud
from tests.fixtures.upstream import HOST, PROVIDER, SERVERS, LeftInPlacement, Upstream

QAT = '0000:6b:00.0'
T4 = '0000:3b:00.0'
VGPU = 'nvidia-223'


def made(name):
    """A uuid that tests can say again."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


@pytest.fixture
def cloud(tmp_path, request):
    make = getattr(request, 'param', Cloud)
    made = make(tmp_path, more=f'[gpu_devices]\nenabled_vgpu_types = {VGPU}\n')
    made.start()
    yield made
    made.stop()


@pytest.fixture
def upstream(tmp_path):
    return Upstream(tmp_path / 'upstream.db')


@pytest.fixture
def placement(cloud):
    """Placement as the upstream service left it, with the allocations of its servers."""
    node = sim_nova.make_compute_node(cloud.placement, HOST)
    found = LeftInPlacement(cloud.placement)
    found.node = node
    found.provider(PROVIDER, left.NAME, node, 'FPGA', 16, ['CUSTOM_FAKE_DEVICE'])
    for server, amount in SERVERS.items():
        found.allocate(server, PROVIDER, 'FPGA', amount)
    return found


@pytest.fixture
def take_over(cloud, upstream, capsys):
    """cyborg-manage import with these words; returns what it printed."""
    parser = argparse.ArgumentParser()
    manage_import.add_commands(parser.add_subparsers())

    def run(*words):
        capsys.readouterr()
        options = parser.parse_args(['import', '--from', upstream.url, *words])
        assert options.function(cloud.standalone.conf, options) == 0
        return capsys.readouterr().out

    return run


def bound(cloud):
    return {arq['uuid']: arq for arq in cloud.arqs() if arq['state'] == 'Bound'}


def rows(cloud, query):
    with cloud.standalone.db.reader() as session:
        return list(session.scalars(query))


def test_servers_keep_their_devices_and_nova_notices_nothing(cloud, upstream, placement, take_over):
    before, database = placement.allocations(SERVERS), upstream.path.read_bytes()
    take_over('--yes')
    imported = bound(cloud)
    assert len(imported) == 5
    # when the agent starts on the hardware that the upstream service had
    cloud.host(HOST)
    cloud.rest(HOST)
    # then the provider is ours, with its uuid, and nobody claims it
    assert cloud.get(f'/agents/{HOST}')['conflicts'] == {}
    assert set(cloud.providers(HOST)) == {left.NAME}
    provider = cloud.providers(HOST)[left.NAME]
    assert provider['uuid'] == PROVIDER
    assert provider['traits'] == {'CUSTOM_FAKE_DEVICE', 'OWNER_CYBORG'}
    assert provider['inventories']['FPGA']['total'] == 16
    assert provider['inventories']['FPGA']['reserved'] == 0
    # and the rows are those that were imported
    [device] = cloud.get('/devices')['devices']
    assert device['uuid'] == left.DEVICE and cloud.rp(HOST) == PROVIDER
    theirs = upstream.execute('SELECT uuid FROM attach_handles')
    assert {row.uuid for row in rows(cloud, sa.select(models.AttachHandle))} == {
        uuid for (uuid,) in theirs
    }
    # and requests and allocations did not change
    assert bound(cloud) == imported
    assert placement.allocations(SERVERS) == before
    assert cloud.nova.events() == []
    assert Audit(cloud.standalone.db).look() == []
    # and the upstream service could return to what it left
    assert upstream.path.read_bytes() == database


def test_another_server_gets_a_handle_and_a_deleted_one_frees_its_own(cloud, placement, take_over):
    take_over('--yes')
    cloud.host(HOST)
    cloud.rest(HOST)
    [arq] = cloud.request('fpga-one')
    assert cloud.bind(arq, host=HOST, rp=PROVIDER).status_code == 202
    assert len(bound(cloud)) == 6
    held = sa.select(models.AttachHandle.uuid).where(models.AttachHandle.arq_id.is_not(None))
    assert len(rows(cloud, held)) == 6
    # when Nova deletes the server with three requests
    server = next(server for server, amount in SERVERS.items() if amount == 3)
    answer = cloud.call('DELETE', '/accelerator_requests', params={'instance': server})
    assert answer.status_code == 204
    placement.free(server)
    assert len(bound(cloud)) == 3
    eventually(lambda: len(rows(cloud, held)) == 3)
    free = sa.select(models.AttachHandle.uuid).where(
        models.AttachHandle.arq_id.is_(None), models.AttachHandle.withheld.is_(None)
    )
    eventually(lambda: len(rows(cloud, free)) == 13)
    # then the import does not bring its requests back
    assert 'There is nothing to import.' in take_over('--yes')
    assert len(bound(cloud)) == 3


@pytest.mark.parametrize('state', ['BindStarted', 'BindFailed', 'UnbindFailed'])
def test_nova_deletes_failed_requests_with_their_server(cloud, upstream, take_over, state):
    server = next(server for server, amount in SERVERS.items() if amount == 3)
    upstream.execute(
        'UPDATE extended_accelerator_requests SET state = ? WHERE instance_uuid = ?', state, server
    )
    take_over('--yes')
    assert [arq['state'] for arq in cloud.arqs()].count('BindFailed') == 3
    # when Nova deletes the server
    answer = cloud.call('DELETE', '/accelerator_requests', params={'instance': server})
    # then none of them is left
    assert answer.status_code == 204
    assert len(cloud.arqs()) == 3 and 'BindFailed' not in {arq['state'] for arq in cloud.arqs()}


@pytest.mark.parametrize('cloud', [trusting_cloud], indirect=True)
def test_the_owner_of_a_server_reads_requests_that_had_no_project(cloud, upstream, take_over):
    upstream.execute('UPDATE extended_accelerator_requests SET project_id = NULL')
    server = next(server for server, amount in SERVERS.items() if amount == 3)
    # while Nova does not list the servers, a dry run says that the requests have no project
    assert f'its server {server} is not known' in take_over()
    take_over('--yes')
    # when Nova lists them
    cloud.nova.projects = dict.fromkeys(SERVERS, 'owner')
    assert 'the projects of 5 requests of earlier imports' in take_over('--yes')
    # then Nova reads them with the token of the owner, and others do not see them
    path = f'/accelerator_requests?instance={server}'
    assert len(Person(cloud, project='owner').get(path)['arqs']) == 3
    assert Person(cloud, project='another').get(path)['arqs'] == []
    assert 'There is nothing to import.' in take_over('--yes')


def test_a_dry_run_changes_nothing_and_a_second_import_adds_what_is_new(
    cloud, upstream, placement, take_over
):
    printed = json.loads(take_over('--format', 'json'))
    assert printed['applied'] is False
    assert printed['counts'] == {
        'profiles': 4,
        'devices': 1,
        'deployables': 1,
        'handles': 16,
        'requests': 6,
    }
    assert cloud.get('/devices')['devices'] == [] and cloud.arqs() == []
    assert 'Imported: 4 device profiles' in take_over('--yes')
    upstream.execute('UPDATE attach_handles SET in_use = 1 WHERE id = 6')
    upstream.add_bound(made('new'), 6, PROVIDER, made('server'))
    printed = json.loads(take_over('--format', 'json', '--yes'))
    assert [each['uuid'] for each in printed['requests']] == [made('new')]
    assert sum(printed['counts'].values()) == 1
    assert len(bound(cloud)) == 6


def test_an_agent_that_started_before_the_import_takes_over_afterwards(cloud, placement, take_over):
    cloud.host(HOST)
    eventually(lambda: cloud.get(f'/agents/{HOST}')['conflicts'])
    take_over('--yes')
    cloud.agent(HOST).inventory.beat()
    eventually(lambda: cloud.get(f'/agents/{HOST}')['conflicts'] == {})
    eventually(lambda: 'OWNER_CYBORG' in cloud.providers(HOST)[left.NAME]['traits'])
    [device] = cloud.get('/devices')['devices']
    assert device['uuid'] == left.DEVICE and cloud.rp(HOST) == PROVIDER
    assert len(bound(cloud)) == 5


def test_a_provider_of_nova_is_never_adopted(cloud, placement, take_over):
    take_over('--yes')
    claimed = f'{HOST}_{QAT.upper()}'
    placement.provider(made('nova'), claimed, placement.node, 'CUSTOM_PCI', 1)
    cloud.host(
        HOST,
        SimHost,
        cards=[{'model': '8086:37c8', 'at': QAT}],
        drivers=['fake_driver', 'intel_qat_driver'],
    )
    eventually(lambda: cloud.get(f'/agents/{HOST}')['conflicts'])
    assert cloud.providers(HOST)[claimed]['traits'] == set()
    assert cloud.providers(HOST)[left.NAME]['uuid'] == PROVIDER


def test_a_provider_that_an_option_names_is_adopted(cloud, placement):
    # placement has the provider, and nothing is imported
    cloud.standalone.conf.set_override('adopted_providers', [PROVIDER], group='agent')
    cloud.host(HOST)
    cloud.rest(HOST)
    assert cloud.providers(HOST)[left.NAME]['uuid'] == cloud.rp(HOST) == PROVIDER
    assert 'OWNER_CYBORG' in cloud.providers(HOST)[left.NAME]['traits']


def start_divided_qat(cloud):
    """Our agent starts on the host, and offers the four functions of the card together."""
    cloud.host(
        HOST,
        SimHost,
        cards=[{'model': '8086:37c8', 'at': QAT, 'vfs': 4}],
        drivers=['fake_driver', 'intel_qat_driver'],
    )
    cloud.rest(HOST)


def qat_by_functions(upstream, placement, count=4):
    """A QAT card as the upstream service has it: a provider for each virtual function."""
    device = upstream.add_device(made('qat'), QAT, type='QAT', vendor='8086')
    for number in range(count):
        address = f'0000:6b:01.{number}'
        provider = made(f'provider{number}')
        part = upstream.add_deployable(
            made(f'part{number}'), device, address, provider, 'CUSTOM_QAT'
        )
        upstream.add_handle(made(f'handle{number}'), part, address)
        placement.provider(provider, f'{HOST}_{address}', placement.node, 'CUSTOM_QAT', 1)
    return upstream.execute('SELECT id FROM attach_handles WHERE uuid = ?', made('handle2'))[0][0]


def test_a_virtual_function_stays_with_its_server_and_its_provider_until_it_is_free(
    cloud, upstream, placement, take_over
):
    server = made('server')
    handle = qat_by_functions(upstream, placement)
    upstream.add_bound(made('arq'), handle, made('provider2'), server)
    placement.allocate(server, made('provider2'), 'CUSTOM_QAT', 1)
    before = placement.allocations([server, *SERVERS])
    take_over('--yes')
    start_divided_qat(cloud)
    assert cloud.get(f'/agents/{HOST}')['conflicts'] == {}
    providers = cloud.providers(HOST)
    # the server's function is where it was, the others are offered by their card
    assert providers[f'{HOST}_0000:6b:01.2']['uuid'] == made('provider2')
    assert providers[f'{HOST}_0000:6b:01.2']['inventories']['CUSTOM_QAT']['total'] == 1
    assert providers[f'{HOST}_{QAT}']['inventories']['CUSTOM_QAT']['total'] == 3
    assert f'{HOST}_0000:6b:01.1' not in providers  # emptied
    assert placement.allocations([server, *SERVERS]) == before
    arq = bound(cloud)[made('arq')]
    assert arq['attach_handle_uuid'] == made('handle2')
    assert {device['uuid'] for device in cloud.get('/devices')['devices']} == {
        left.DEVICE,
        made('qat'),
    }
    # the next round changes nothing
    cloud.agent(HOST).inventory.wake(must_report=True)
    cloud.rest(HOST)
    assert cloud.providers(HOST) == providers
    # when the server is deleted
    answer = cloud.call('DELETE', '/accelerator_requests', params={'instance': server})
    assert answer.status_code == 204
    placement.free(server)
    cloud.agent(HOST).inventory.wake(must_report=True)
    eventually(
        lambda: cloud.providers(HOST)[f'{HOST}_{QAT}']['inventories']['CUSTOM_QAT']['total'] == 4
    )
    assert f'{HOST}_0000:6b:01.2' not in cloud.providers(HOST)


def test_a_handle_that_is_new_after_the_agent_reported_is_the_one_at_its_place(
    cloud, upstream, placement, take_over
):
    upstream.execute('DELETE FROM attach_handles WHERE id = 16')
    take_over('--yes')
    cloud.host(HOST)
    cloud.rest(HOST)
    total = sa.select(models.AttachHandle)
    assert len(rows(cloud, total)) == 16
    # when the upstream service returns, and finds the function that it did not know
    number = upstream.add_handle(made('handle'), 1, '0000:0c:2.0', 'TEST_PCI')
    upstream.add_bound(made('arq'), number, PROVIDER, made('server'))
    strange = upstream.add_handle(made('strange'), 1, '0000:0c:1f.0', 'TEST_PCI')
    upstream.add_bound(made('lost'), strange, PROVIDER, made('server'))
    printed = take_over('--yes')
    # then the row of our driver is that handle, and nobody else gets it
    for _ in range(2):
        assert len(rows(cloud, total)) == 16
        [handle] = rows(cloud, total.where(models.AttachHandle.uuid == made('handle')))
        assert not handle.is_missing and handle.arq_id is not None
        assert bound(cloud)[made('arq')]['attach_handle_uuid'] == made('handle')
        cloud.agent(HOST).inventory.wake(must_report=True)
        cloud.rest(HOST)
    # and one that no driver reports is left out
    assert f'Attach handle {made("strange")} is left out' in printed
    assert f'Request {made("lost")} is bound to server' in printed


@pytest.mark.parametrize('is_late', [False, True], ids=['before the agent', 'after it reported'])
def test_a_quarantined_handle_can_be_cleaned(cloud, upstream, take_over, placement, is_late):
    upstream.execute('DELETE FROM attach_handles WHERE id = 16')
    if is_late:
        take_over('--yes')
        cloud.host(HOST)
        cloud.rest(HOST)
    upstream.add_handle(made('handle'), 1, '0000:0c:2.0', 'TEST_PCI', in_use=1)
    take_over('--yes')
    if not is_late:
        cloud.host(HOST)
    cloud.agent(HOST).inventory.wake(must_report=True)
    cloud.rest(HOST)
    mine = sa.select(models.AttachHandle).where(models.AttachHandle.uuid == made('handle'))
    assert [each.withheld for each in rows(cloud, mine)] == ['quarantined']
    with transact(cloud.standalone.db, Cause('operator')) as unit:
        quarantine.clean_again(unit, made('handle'))
    cloud.agent(HOST).inventory.wake(must_report=True)
    eventually(lambda: [each.withheld for each in rows(cloud, mine)] == [None])


def test_an_imported_profile_that_is_not_valid_has_no_availability(cloud, upstream, take_over):
    upstream.add(
        'device_profiles',
        uuid=made('profile'),
        name='odd',
        profile_json='{"groups": [{"resources:FPGA": "many"}]}',
    )
    take_over('--yes')
    answer = cloud.call('GET', '/device_profiles/odd/availability')
    assert answer.status_code == 422
    assert "asks for 'many' of resources:FPGA" in answer.text


def test_a_function_that_moved_to_its_card_returns_with_a_server_of_the_upstream_service(
    cloud, upstream, placement, take_over
):
    qat_by_functions(upstream, placement)
    take_over('--yes')
    start_divided_qat(cloud)
    assert cloud.providers(HOST)[f'{HOST}_{QAT}']['inventories']['CUSTOM_QAT']['total'] == 4
    # when the upstream service returns, and gives one function to a server
    [(number,)] = upstream.execute('SELECT id FROM attach_handles WHERE uuid = ?', made('handle2'))
    upstream.add_bound(made('arq'), number, made('provider2'), made('server'))
    take_over('--yes')
    # then its card does not offer that function
    handle = models.AttachHandle
    here = [each.uuid for each in rows(cloud, sa.select(handle)) if each.info['bus'] == '6b']
    assert len(here) == 4 and made('handle2') in here
    assert bound(cloud)[made('arq')]['attach_handle_uuid'] == made('handle2')
    cloud.agent(HOST).inventory.beat()
    name = f'{HOST}_0000:6b:01.2'
    # a provider is created before its inventory is
    eventually(lambda: cloud.providers(HOST).get(name, {}).get('inventories'))
    cloud.rest(HOST)
    provider = cloud.providers(HOST)[name]
    assert provider['uuid'] == made('provider2')
    assert provider['inventories']['CUSTOM_QAT']['total'] == 1
    assert cloud.providers(HOST)[f'{HOST}_{QAT}']['inventories']['CUSTOM_QAT']['total'] == 3


def test_a_device_that_no_driver_reports_keeps_its_requests(cloud, upstream, placement, take_over):
    take_over('--yes')
    cloud.host(HOST, drivers=())
    eventually(lambda: cloud.get('/devices')['devices'][0]['fault'])
    assert len(bound(cloud)) == 5
    assert 'No driver has reported imported device' in take_over()
    cloud.rest(HOST)
    inventory = cloud.providers(HOST)[left.NAME]['inventories']['FPGA']
    assert inventory['reserved'] == inventory['total'] == 16
    # and is recognized when its driver is enabled
    cloud.standalone.remove_host(HOST)
    cloud.hosts[HOST].drivers = ('fake_driver',)
    cloud.standalone.add_host(cloud.hosts[HOST])
    eventually(lambda: not cloud.get('/devices')['devices'][0]['fault'])
    cloud.rest(HOST)
    assert cloud.providers(HOST)[left.NAME]['inventories']['FPGA']['reserved'] == 0
    assert len(bound(cloud)) == 5


def test_a_host_that_never_started_is_forgotten_with_its_provider(
    cloud, placement, take_over, monkeypatch, capsys
):
    take_over('--yes')
    monkeypatch.setattr(keystone, 'connect', lambda conf, section: cloud.placement)
    parser = argparse.ArgumentParser()
    manage_hosts.add_commands(parser.add_subparsers())
    options = parser.parse_args(['host', 'forget', HOST])
    # given servers that hold units of the provider that upstream left: it is reserved
    assert options.function(cloud.standalone.conf, options) == 1
    assert 'still allocated to servers' in capsys.readouterr().out
    # when they are gone, it is deleted, though it lacks the trait of its owner
    for server in SERVERS:
        placement.free(server)
    assert options.function(cloud.standalone.conf, options) == 0
    gone = cloud.placement.get(f'/resource_providers/{PROVIDER}', raise_exc=False)
    assert gone.status_code == 404


def test_vgpus_keep_the_uuids_of_their_mediated_devices(cloud, upstream, placement, take_over):
    kind, handles = VGPU, [made(f'vgpu{number}') for number in range(3)]
    device = upstream.add_device(
        made('t4'), T4, type='GPU', vendor='10de', std_board_info={'product_id': '1eb8'}
    )
    part = upstream.add_deployable(made('part'), device, T4, made('rp'), 'VGPU')
    numbers = [
        upstream.add_handle(each, part, T4, 'MDEV', asked_type=kind, vgpu_mark=f'{kind}_{number}')
        for number, each in enumerate(handles)
    ]
    server = made('server')
    upstream.add_bound(made('arq'), numbers[1], made('rp'), server)
    placement.provider(made('rp'), f'{HOST}_{T4}', placement.node, 'VGPU', 3)
    placement.allocate(server, made('rp'), 'VGPU', 1)
    take_over('--yes')
    cloud.host(
        HOST,
        SimHost,
        cards=[{'model': '10de:1eb8', 'at': T4}],
        drivers=['fake_driver', 'nvidia_gpu_driver'],
    )
    cloud.rest(HOST)
    eventually(lambda: made('arq') in bound(cloud))
    assert bound(cloud)[made('arq')]['attach_handle_uuid'] == handles[1]
    eventually(lambda: cloud.hosts[HOST].mdevs() == {handles[1]: kind})
    assert cloud.providers(HOST)[f'{HOST}_{T4}']['uuid'] == made('rp')
