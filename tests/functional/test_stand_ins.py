# SPDX-License-Identifier: Apache-2.0
"""Clients find Placement and the stand-ins for Keystone, Nova and Glance in the catalogue of a
standalone."""

import hashlib

import openstack
import pytest
from openstack import exceptions

from cyborg.cmd import manage, startup
from tests.fixtures.bench import VGPUS, running
from tests.fixtures.cloud import PATIENCE, eventually
from tests.fixtures.fpga import gbs

pytestmark = [
    pytest.mark.embedded,
    # openstacksdk warns of its own internals
    pytest.mark.filterwarnings('ignore::DeprecationWarning'),
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
]
#: of the N6001 in the demo's host
REGION_TYPE = '7cb96dc4-a1b2-5c3d-9e0f-4b3a2c1d0e9f'
FUNCTION = '11111111-2222-3333-4444-555555555555'


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
    with running(tmp_path_factory.mktemp('bench')) as made:
        yield made


@pytest.fixture(scope='module')
def cloud(bench):
    config = openstack.config.OpenStackConfig(
        config_files=[str(bench.directory / 'clouds.yaml')], load_envvars=False
    )
    with openstack.connection.Connection(config=config.get_one('cyborg-standalone')) as made:
        yield made


def test_the_catalogue_has_all_services(cloud):
    kinds = {each['type'] for each in cloud.service_catalog}
    assert kinds == {'identity', 'accelerator', 'placement', 'compute', 'image'}
    assert cloud.current_project.name == 'demo'


def test_the_newest_version_of_the_api_is_asked_for(cloud):
    assert {device.status for device in cloud.accelerator.devices()} == {'enabled'}


def test_placement_shows_the_providers(cloud):
    names = {provider.name for provider in cloud.placement.resource_providers()}
    assert {'compute1', 'compute1_0000:3b:00.0'} <= names


def test_a_server_is_created_and_deleted_through_nova(cloud, bench):
    profile = bench.profile(VGPUS)
    flavor = cloud.compute.find_flavor(profile, get_extra_specs=True)
    assert flavor.extra_specs == {'accel:device_profile': profile}
    server = cloud.compute.create_server(
        name='web', flavor_id=flavor.id, image_id='any', networks='none'
    )
    server = cloud.compute.wait_for_server(server, wait=PATIENCE)
    assert (server.status, server.compute_host) == ('ACTIVE', 'compute1')
    assert [each.name for each in cloud.compute.servers()] == ['web']
    arqs = list(cloud.accelerator.accelerator_requests())
    assert {arq.instance_uuid for arq in arqs} == {server.id}
    cloud.compute.delete_server(server)
    cloud.compute.wait_for_delete(server, wait=PATIENCE)
    assert list(cloud.accelerator.accelerator_requests()) == []


def test_a_server_that_fits_nowhere_is_in_error_with_the_reason(cloud, bench):
    server = cloud.compute.create_server(
        name='big',
        flavor_id=bench.profile({'resources:CUSTOM_QAT': '17'}),
        image_id='any',
        availability_zone='nova:compute1',
    )
    with pytest.raises(exceptions.ResourceFailure):
        cloud.compute.wait_for_server(server, wait=PATIENCE)
    fault = cloud.compute.get_server(server).fault
    assert fault['message'].startswith('No valid host was found. compute1: ')
    cloud.compute.delete_server(server)


def test_what_nova_does_not_know_is_not_found(cloud):
    with pytest.raises(exceptions.NotFoundException, match='There is no flavor none'):
        cloud.compute.create_server(name='web', flavor_id='none', image_id='any')
    with pytest.raises(exceptions.NotFoundException, match='There is no server none'):
        cloud.compute.get_server('none')
    with pytest.raises(exceptions.NotFoundException, match='has no GET /os-keypairs'):
        list(cloud.compute.keypairs())


def test_an_image_is_uploaded_and_loaded_into_an_fpga(cloud, bench):
    data = gbs(FUNCTION, interface=REGION_TYPE)
    image = cloud.image.create_image(
        'gzip', data=data, disk_format='raw', container_format='bare', function_id=FUNCTION
    )
    shown = cloud.image.get_image(image.id)
    assert (shown.status, shown.hash_value) == ('active', hashlib.sha512(data).hexdigest())
    region = next(
        each
        for each in bench.get('/v2/deployables')['deployables']
        if each['name'].endswith('_region0')
    )
    path = f'/v2/deployables/{region["uuid"]}/program'
    body = [{'op': 'replace', 'path': '/program', 'value': [{'image_uuid': image.id}]}]
    response = bench.call('PATCH', path, body)
    assert response.ok, response.text
    trait = 'CUSTOM_FPGA_INTEL_FUNCTION_11111111_2222_3333_4444_555555555555'
    eventually(
        lambda: (
            trait
            in {
                each
                for device in bench.get('/v2/topology?hostname=compute1')['hosts'][0]['devices']
                for deployable in device['deployables']
                for each in deployable['traits']
            }
        )
    )
    cloud.image.delete_image(image.id)
    assert [each.name for each in cloud.image.images()] == []


def test_the_audit_compares_with_placement_and_nova(bench, monkeypatch, capsys):
    """As a process of its own would: by the configuration that the standalone has written."""
    bench.control('boot', profile=bench.profile(VGPUS), name='audited')
    configuration = (bench.directory / 'cyborg.conf').read_text()
    assert f'endpoint = {bench.url}/placement' in configuration
    options = type('Options', (), {'fix': False})
    assert manage.manage_audit.audit(startup.CONF, options) == 0
    assert capsys.readouterr().out == 'Everything agrees.\n'
    bench.control('delete', server='audited')
