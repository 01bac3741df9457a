# SPDX-License-Identifier: Apache-2.0
"""The ``openstack accelerator`` commands, as their users type them.

There are two sets: those in python-openstackclient itself, and those of python-cyborgclient,
which older ones of it show.
"""

import uuid

import pytest

from tests.fixtures.commands import VENVS, Commands, Failed, served_cloud

pytestmark = pytest.mark.clients


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    with served_cloud(tmp_path_factory.mktemp('cloud')) as made:
        yield made


@pytest.fixture(params=VENVS)
def openstack(request, cloud):
    return Commands(request.param, cloud.environ)


def lower(shown):
    """Columns are written in different ways."""
    return {name.lower().replace(' ', '_'): value for name, value in shown.items()}


def test_devices_and_their_parts(openstack, cloud):
    [device] = openstack('device', 'list')
    device = lower(device)
    assert (device['type'], device['hostname']) == ('FPGA', 'compute1')
    assert lower(openstack('device', 'show', device['uuid']))['vendor'] == '0xABCD'
    [part] = openstack('deployable', 'list', '--long')
    part = lower(part)
    assert (part['name'], part['num_accelerators']) == ('compute1_FakeDevice', 16)
    assert lower(openstack('deployable', 'show', part['uuid']))['name'] == part['name']
    with pytest.raises(Failed, match='not found|No Device found|404'):
        openstack('device', 'show', str(uuid.uuid4()))


def test_a_profile_from_its_making_to_its_end(openstack):
    name = f'cli-{uuid.uuid4()}'
    made = lower(openstack.create_profile(name, {'resources:FPGA': '1'}))
    assert (made['name'], made['description']) == (name, 'from the command line')
    assert 'resources:FPGA' in str(made['groups'])
    assert made['uuid'] in [lower(each)['uuid'] for each in openstack('device', 'profile', 'list')]
    assert lower(openstack('device', 'profile', 'show', made['uuid']))['name'] == name
    openstack.run('device', 'profile', 'delete', made['uuid'])
    with pytest.raises(Failed, match='not found|No DeviceProfile found|404'):
        openstack('device', 'profile', 'show', made['uuid'])


def test_a_profile_by_its_name(openstack):
    name = f'cli-{uuid.uuid4()}'
    openstack.create_profile(name, {'resources:FPGA': '1'})
    if openstack.name == 'openstackclient':  # it asks for version 2.0 by itself
        with pytest.raises(Failed, match='needs version 2.2'):
            openstack('device', 'profile', 'show', name)
    shown = openstack('--os-accelerator-api-version', '2.2', 'device', 'profile', 'show', name)
    assert lower(shown)['name'] == name
    openstack.run('device', 'profile', 'delete', name)


def test_the_cloud_that_a_new_user_names_has_the_newest_version(cloud):
    openstack = Commands('openstackclient', cloud.environ | {'OS_CLOUD': 'served'})
    [device] = openstack('device', 'list')
    assert device['status'] == 'enabled'


def test_what_is_wrong_is_said(openstack):
    with pytest.raises(Failed, match='its name must be 1 to 255 letters'):
        openstack.create_profile('no name', {'resources:FPGA': '1'})


def test_a_request_from_its_making_to_its_end(openstack, cloud):
    profile, instance = f'cli-{uuid.uuid4()}', str(uuid.uuid4())
    openstack.create_profile(profile, {'resources:FPGA': '1'})
    made = lower(openstack('arq', 'create', profile))
    assert (made['state'], made['device_profile_name']) == ('Initial', profile)
    if openstack.name == 'cyborgclient':
        bound = openstack('arq', 'bind', made['uuid'], 'compute1', instance, cloud.rp(), 'p')
        assert lower(bound)['state'] == 'Bound'
    else:  # it would look for the server in Nova first
        assert cloud.bind(made, instance=instance).status_code == 202
    shown = lower(openstack('arq', 'show', made['uuid']))
    assert (shown['state'], shown['instance_uuid']) == ('Bound', instance)
    assert 'domain' in str(shown['attach_handle_info'])
    assert instance in [lower(each)['instance_uuid'] for each in openstack('arq', 'list')]
    assert lower(openstack('arq', 'unbind', made['uuid']))['state'] == 'Unbound'
    openstack.run('arq', 'delete', made['uuid'])
    assert made['uuid'] not in [lower(each)['uuid'] for each in openstack('arq', 'list', '--long')]
    openstack.run('device', 'profile', 'delete', profile)


def test_attributes(openstack):
    [part] = openstack('deployable', 'list')
    made = lower(openstack('device', 'attribute', 'create', lower(part)['uuid'], 'colour', 'red'))
    assert lower(openstack('device', 'attribute', 'show', made['uuid']))['value'] == 'red'
    listed = [lower(each) for each in openstack('device', 'attribute', 'list')]
    assert made['uuid'] in [each['uuid'] for each in listed]
    openstack.run('device', 'attribute', 'delete', made['uuid'])
    with pytest.raises(Failed):
        openstack('device', 'attribute', 'show', made['uuid'])
