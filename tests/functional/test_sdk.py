# SPDX-License-Identifier: Apache-2.0
"""openstacksdk, as it is, against the service on a port of its own."""

import uuid

import openstack
import pytest
from openstack import exceptions

from cyborg.api import microversions
from cyborg.cmd.api import Server

#: the SDK warns of what it does itself
pytestmark = [
    pytest.mark.any_database,
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
]

INSTANCE = str(uuid.uuid4())


@pytest.fixture
def server(cloud):
    cloud.host('compute1')
    server = Server(cloud.standalone.api, '127.0.0.1', 0, 4)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def sdk(server):
    connection = openstack.connection.Connection(
        auth_type='none',
        auth={'endpoint': server.url},
        accelerator_endpoint_override=f'{server.url}/v2',
    )
    yield connection.accelerator
    connection.close()


def test_it_discovers_the_versions_there_are(sdk, server):
    data = sdk.get_endpoint_data()
    assert data.url.rstrip('/') == f'{server.url}/v2'
    assert (data.api_version, data.min_microversion, data.max_microversion) == (
        (2, 0),
        (2, 0),
        tuple(microversions.HIGHEST),
    )


def test_it_sees_devices_and_their_parts(sdk):
    [device] = sdk.devices()
    assert sdk.get_device(device.id).type == 'FPGA'
    [deployable] = sdk.deployables()
    assert sdk.get_deployable(deployable.id).num_accelerators == 16


def test_it_goes_through_all_pages(sdk):
    for number in range(5):
        sdk.create_device_profile(name=f'p{number}', groups=[{'resources:FPGA': '1'}])
    names = {profile.name for profile in sdk.device_profiles(limit=2)}
    assert names == {f'p{number}' for number in range(5)}


def test_it_binds_and_releases_a_device(sdk, cloud):
    profile = sdk.create_device_profile(
        name='one', description=None, groups=[{'resources:FPGA': '1'}]
    )
    request = sdk.create_accelerator_request(device_profile_name='one')
    assert request.state == 'Initial'
    values = {'hostname': 'compute1', 'device_rp_uuid': cloud.rp(), 'instance_uuid': INSTANCE}
    sdk.update_accelerator_request(
        request.id,
        [{'op': 'add', 'path': f'/{name}', 'value': value} for name, value in values.items()],
    )
    bound = sdk.get_accelerator_request(request.id)
    assert (bound.state, bound.instance_uuid) == ('Bound', INSTANCE)
    assert bound.attach_handle_info['domain'] == '0000'
    with pytest.raises(exceptions.ConflictException, match='used by accelerator requests'):
        sdk.delete_device_profile(profile.id)
    sdk.update_accelerator_request(
        request.id, [{'op': 'remove', 'path': f'/{name}'} for name in values]
    )
    assert [each.state for each in sdk.accelerator_requests()] == ['Unbound']
    sdk.delete_accelerator_request(request.id, ignore_missing=False)
    sdk.delete_device_profile(profile.id, ignore_missing=False)
    assert list(sdk.device_profiles()) == []


def test_it_adds_attributes(sdk):
    [deployable] = sdk.deployables()
    attribute = sdk.create_attribute(deployable_id=deployable.id, key='colour', value='red')
    assert sdk.get_attribute(attribute.id).value == 'red'
    sdk.delete_attribute(attribute.id, ignore_missing=False)
    with pytest.raises(exceptions.NotFoundException):
        sdk.get_attribute(attribute.id)


def test_it_shows_what_is_wrong(sdk):
    with pytest.raises(exceptions.HttpException, match='its name must be 1 to 255 letters'):
        sdk.create_device_profile(name='', groups=[{'resources:FPGA': '1'}])
