# SPDX-License-Identifier: Apache-2.0
"""From a real Glance, with a real Keystone and the clients that people use, into a card."""

import uuid

import pytest
from openstack import exceptions

from tests.fixtures.cloud import eventually
from tests.fixtures.commands import Commands, Failed
from tests.fixtures.fpga import FIRST_FUNCTION, FUNCTION, REGION_TYPE, FpgaHost, gbs
from tests.fixtures.identity import REGION, Served, forget_options

pytestmark = [pytest.mark.keystone,
              # the SDK warns of what it does itself
              pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
              pytest.mark.filterwarnings('ignore::ResourceWarning')]

SETTINGS = """\
[glance]
auth_type = password
auth_url = {url}
username = {username}
password = {password}
user_domain_id = default
project_name = admins
project_domain_id = default
region_name = {region}
"""


@pytest.fixture(scope='module')
def cloud(identity, glance, tmp_path_factory):
    made = identity.cloud(tmp_path_factory.mktemp('cloud'), SETTINGS.format(
        region=REGION, **{'url': identity.url} | {
            name: value for name, value in identity.credentials('admin').items()
            if name in ('username', 'password')}))
    made.start()
    made.host(make=FpgaHost)
    with Served(made, identity):
        yield made
    made.stop()
    forget_options('glance')


@pytest.fixture(scope='module')
def admin(cloud, identity):
    connection = identity.connect('admin')
    yield connection
    connection.close()


@pytest.fixture
def upload(admin):
    def upload(data, **properties):
        return admin.image.create_image(
            f'bits-{uuid.uuid4()}', data=data, container_format='bare', disk_format='raw',
            validate_checksum=False, **properties)
    return upload


@pytest.fixture(scope='module')
def region(admin):
    return next(each for each in admin.accelerator.deployables() if each.num_accelerators)


def program(admin, region, image):
    return admin.accelerator.patch_deployable(region.id, [
        {'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image.id}]}])


def shown(admin, region):
    return admin.accelerator.get(f'/deployables/{region.id}').json()


def test_the_sdk_loads_an_image(admin, region, upload):
    image = upload(gbs(), vendor='intel', region_uuid=REGION_TYPE, function_uuid=FUNCTION)
    assert program(admin, region, image).id == region.id
    assert shown(admin, region)['bitstream_id'] == image.id
    eventually(lambda: FUNCTION in shown(admin, region)['attributes_list'])


def test_an_image_that_is_not_for_use_is_refused(admin, region, upload):
    image = upload(gbs())
    admin.image.deactivate_image(image.id)
    with pytest.raises(exceptions.ConflictException, match='deactivated, not active'):
        program(admin, region, image)
    admin.image.delete_image(image.id)
    with pytest.raises(exceptions.ConflictException, match='Glance does not have it'):
        program(admin, region, image)


def test_an_image_for_others_is_refused(admin, region, upload):
    with pytest.raises(exceptions.ConflictException, match='its region_uuid is'):
        program(admin, region, upload(gbs(), region_uuid=FUNCTION))


@pytest.mark.clients
def test_the_command_loads_an_image(admin, identity, region, upload):
    openstack = Commands('openstackclient', {
        'OS_AUTH_TYPE': 'password', 'OS_PROJECT_NAME': 'admins', 'OS_REGION_NAME': REGION,
        'OS_PROJECT_DOMAIN_ID': 'default', 'OS_USER_DOMAIN_ID': 'default',
        **{f'OS_{name.upper()}': value
           for name, value in identity.credentials('admin').items()}})
    image = upload(gbs(FIRST_FUNCTION))
    told = openstack('deployable', 'program', region.id, image.id)
    assert region.id in told.values()
    assert shown(admin, region)['bitstream_id'] == image.id
    with pytest.raises(Failed, match='the image is for nothing we know'):
        openstack('deployable', 'program', region.id, upload(b'noise').id)
