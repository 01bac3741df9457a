# SPDX-License-Identifier: Apache-2.0
"""The commands that this repository adds to ``openstack accelerator``, beside either set."""

import concurrent.futures
import configparser
import importlib.metadata
import pathlib
import uuid

import pytest

from tests.fixtures.cloud import PATIENCE, eventually
from tests.fixtures.commands import ROOT, VENVS, Commands, Failed, served_cloud
from tests.fixtures.fpga import ADDRESS, FUNCTION, FpgaHost, gbs
from tests.fixtures.hosts import SimHost

pytestmark = pytest.mark.clients
GPU = {'model': '10de:1eb8', 'at': '0000:3b:00.0'}


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    with served_cloud(tmp_path_factory.mktemp('cloud')) as made:
        yield made


@pytest.fixture(params=VENVS)
def openstack(request, cloud):
    return Commands(request.param, cloud.environ)


@pytest.fixture
def profile(openstack):
    name = f'osc-{uuid.uuid4()}'
    openstack.create_profile(name, {'resources:FPGA': '1'})
    return name


def test_agents(openstack):
    assert [
        (each['Hostname'], each['Alive'], each['Drivers'])
        for each in openstack('agent', 'list', '--host', 'compute1', '--alive')
    ] == [('compute1', True, {'fake_driver': 'ok'})]
    assert openstack('agent', 'list', '--silent') == []
    assert openstack('agent', 'show', 'compute1')['ready'] is True
    with pytest.raises(Failed, match='Agent not found: nowhere'):
        openstack('agent', 'show', 'nowhere')


def test_the_history_of_a_request(openstack, cloud, profile):
    [arq] = cloud.request(profile)
    assert cloud.bind(arq).status_code == 202
    steps = openstack('arq', 'history', 'list', arq['uuid'])
    assert [(step['From'], step['To']) for step in steps] == [
        (None, 'Initial'),
        ('Initial', 'Bound'),
    ]
    assert steps[-1]['Hostname'] == 'compute1'
    assert openstack('arq', 'history', 'list', '--long', arq['uuid'])[0]['Request ID']
    assert cloud.unbind(arq).status_code == 202


def test_a_profile_is_changed_by_its_name(openstack, profile):
    shown = openstack(
        *('device', 'profile', 'set', profile, '--disable', '--description', 'Compression'),
        *('--group', 'resources:FPGA=2', '--project', 'one', '--project', 'two'),
    )
    assert (shown['enabled'], shown['projects']) == (False, ['one', 'two'])
    assert (shown['description'], shown['groups']) == ('Compression', [{'resources:FPGA': '2'}])
    assert openstack('device', 'profile', 'set', profile, '--enable')['enabled'] is True
    assert openstack('device', 'profile', 'unset', profile, '--project', 'one')['projects'] == [
        'two'
    ]
    shown = openstack('device', 'profile', 'unset', profile, '--all-projects', '--description')
    assert (shown['projects'], shown['description']) == (None, None)


@pytest.mark.parametrize(
    ('words', 'sentence'),
    [
        (['set'], 'Nothing to change'),
        (['unset', '--project', 'one'], 'is not limited to project one'),
        (['set', '--group', 'nonsense=1'], "'nonsense' must start with resources:"),
        (['set', '--name', 'no name'], 'its name must be'),
    ],
    ids=['nothing', 'unknown', 'group', 'name'],
)
def test_a_wrong_change_is_refused_with_a_sentence(openstack, profile, words, sentence):
    with pytest.raises(Failed, match=sentence):
        openstack('device', 'profile', words[0], profile, *words[1:])


def test_the_last_project_is_not_removed_by_mistake(openstack, profile):
    """An empty list would mean something else than its user expects."""
    openstack('device', 'profile', 'set', profile, '--project', 'one')
    with pytest.raises(Failed, match='Use --all-projects'):
        openstack('device', 'profile', 'unset', profile, '--project', 'one')


def test_how_often_a_profile_fits_and_why_not(openstack, cloud, profile):
    shown = openstack('device', 'profile', 'explain', profile, '--host', 'compute1', '--check')
    assert (shown['fits'], shown['hosts'][0]['hostname']) == (16, 'compute1')
    table = openstack.run('device', 'profile', 'explain', profile)
    assert 'compute1: It fits 16 times' in table
    openstack('device', 'profile', 'set', profile, '--group', 'resources:FPGA=17')
    with pytest.raises(Failed, match=f'{profile} fits on none of 1 hosts'):
        openstack('device', 'profile', 'explain', profile, '--check')


def test_what_there_is_and_who_has_it(openstack, cloud, profile):
    [arq] = cloud.request(profile)
    assert cloud.bind(arq).status_code == 202
    [shown] = openstack('capacity', 'list')
    assert (shown['Class'], shown['Units'], shown['In Use']) == ('FPGA', 16, 1)
    rows = openstack('topology', 'show', 'compute1')
    assert [row['Kind'] for row in rows] == ['host', 'device', 'deployable'] + ['unit'] * 16
    assert [row['ARQ'] for row in rows if row['State'] == 'Bound'] == [arq['uuid']]
    tree = openstack.run('topology', 'show', 'compute1')
    assert '└─ FPGA' in tree and '   └─ compute1_FakeDevice' in tree
    with pytest.raises(Failed, match='nowhere'):
        openstack('topology', 'show', 'nowhere')
    assert cloud.unbind(arq).status_code == 202


def test_for_how_long_servers_had_accelerators(openstack, cloud, profile):
    [arq] = cloud.request(profile)
    assert cloud.bind(arq).status_code == 202
    shown = eventually(
        lambda: [
            each
            for each in openstack('usage', 'list', '--start', '2026-01-01')
            if each['Device Profile'] == profile
        ]
    )
    [(project, resource_class, requests)] = [
        (each['Project'], each['Class'], each['Requests']) for each in shown
    ]
    assert (resource_class, requests) == ('FPGA', 1)
    assert 0 <= shown[0]['Hours'] < 1
    assert openstack('usage', 'list', '--project', 'nobody') == []
    assert profile in openstack.run('usage', 'list', '--project', project, '--end', '2999-01-01')
    with pytest.raises(Failed, match='The start must be a date or time'):
        openstack('usage', 'list', '--start', 'yesterday')
    with pytest.raises(Failed, match='must not be before the start'):
        openstack('usage', 'list', '--start', '2026-02-01', '--end', '2026-01-01')
    assert cloud.unbind(arq).status_code == 202


def test_what_happened_after_use_and_what_is_loaded(openstack, cloud):
    [device] = cloud.get('/devices')['devices']
    assert openstack('device', 'handback', 'list', device['uuid'], '--long') == []
    [part] = cloud.get('/deployables')['deployables']
    shown = openstack('deployable', 'program', 'show', part['uuid'], '--wait')
    assert (shown['name'], shown['program_error']) == ('compute1_FakeDevice', None)


@pytest.fixture
def cards(openstack, tmp_path):
    """A cloud of its own with a virtual GPU and an FPGA, and the commands for it."""
    with served_cloud(tmp_path, '[gpu_devices]\nenabled_vgpu_types = nvidia-231\n') as cloud:
        cloud.host('gpu1', SimHost, drivers=['nvidia_gpu_driver'], cards=[GPU])
        fpga = cloud.host('fpga1', FpgaHost)
        yield cloud, fpga, Commands(openstack.name, cloud.environ)
        fpga.goes_on.set()


def test_a_unit_that_was_given_back_and_an_image_that_is_being_loaded(cards):
    cloud, fpga, openstack = cards
    cloud.profile('gpu', {'resources:VGPU': '1'})
    [arq] = cloud.request('gpu')
    assert cloud.bind(arq, host='gpu1').status_code == 202
    eventually(lambda: cloud.arqs()[0]['state'] == 'Bound')
    assert cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}').status_code == 204
    [device] = cloud.get('/devices?type=GPU')['devices']
    [shown] = eventually(
        lambda: openstack('device', 'handback', 'list', device['uuid'], '--result', 'done')
    )
    assert (shown['Kind'], shown['ARQ'], shown['Reason']) == ('release', arq['uuid'], None)
    steps = openstack('arq', 'history', 'list', arq['uuid'])
    assert steps[-1]['To'] == 'Deleting'

    [part] = [
        each
        for each in cloud.get('/deployables')['deployables']
        if each['name'].startswith('fpga1_') and each['num_accelerators']
    ]
    image = cloud.glance.add(gbs())
    fpga.goes_on.clear()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        asked = thread.submit(
            cloud.call,
            'PATCH',
            f'/deployables/{part["uuid"]}/program',
            json=[{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}],
        )
        try:
            assert fpga.is_loading.wait(PATIENCE)
            shown = openstack('deployable', 'program', 'show', part['uuid'])
            assert (shown['program_image'], shown['bitstream_id']) == (image, None)
            assert shown['program_progress'] is not None
        finally:
            fpga.goes_on.set()
        assert asked.result().ok, asked.result().text
    shown = openstack('deployable', 'program', 'show', part['uuid'], '--wait')
    assert (shown['bitstream_id'], shown['program_image']) == (image, None)


def test_waiting_for_an_image_that_a_bind_names_by_its_function(cards):
    cloud, fpga, openstack = cards
    cloud.profile('function', {'resources:FPGA': '1', 'accel:function_id': FUNCTION})
    image = cloud.glance.add(gbs(), visibility='public', function_uuid=FUNCTION)
    name = f'fpga1_{ADDRESS}_region0'
    [part] = cloud.get(f'/deployables?name={name}')['deployables']
    [arq] = cloud.request('function')
    fpga.goes_on.clear()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        bound = thread.submit(cloud.bind, arq, host='fpga1', rp=cloud.rp('fpga1', name))
        try:
            assert fpga.is_loading.wait(PATIENCE)
            with pytest.raises(Failed, match=f'{name} is still being programmed after 1 seconds: '):
                openstack(*('deployable', 'program', 'show', part['uuid'], '--wait'), '--timeout=1')
        finally:
            fpga.goes_on.set()
        shown = openstack('deployable', 'program', 'show', part['uuid'], '--wait')
        assert (shown['bitstream_id'], shown['program_progress']) == (image, None)
        assert bound.result().status_code == 202


def test_no_command_has_the_name_of_one_that_is_there_without_it(openstack):
    config = configparser.ConfigParser()
    config.read(ROOT / 'setup.cfg')
    lines = config['entry_points']['openstack.accelerator.v2'].split('\n')
    ours = {line.partition('=')[0].strip() for line in lines if line}
    [site] = (pathlib.Path(openstack.venv) / 'lib').glob('python3*/site-packages')
    others = {
        entry.name
        for package in importlib.metadata.distributions(path=[str(site)])
        if package.name != 'openstack-cyborg'
        for entry in package.entry_points.select(group='openstack.accelerator.v2')
    }
    assert ours and others
    assert not ours & others
