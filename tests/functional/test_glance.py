# SPDX-License-Identifier: Apache-2.0
"""From a real Glance, with a real Keystone and the clients that people use, into a card."""

import uuid

import pytest
from openstack import exceptions
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.agent.bitstreams import Bitstreams, WantedImage
from cyborg.clients.glance import Glance
from tests.fixtures.cloud import eventually
from tests.fixtures.commands import Commands, Failed
from tests.fixtures.fpga import FIRST_FUNCTION, FUNCTION, REGION_TYPE, FpgaHost, gbs
from tests.fixtures.identity import PEOPLE, REGION, Served, forget_options

pytestmark = [
    pytest.mark.keystone,
    # the SDK warns of what it does itself
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
    pytest.mark.filterwarnings('ignore::ResourceWarning'),
]

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
    made = identity.cloud(
        tmp_path_factory.mktemp('cloud'),
        SETTINGS.format(
            region=REGION,
            **{'url': identity.url}
            | {
                name: value
                for name, value in identity.credentials('admin').items()
                if name in ('username', 'password')
            },
        ),
    )
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
            f'bits-{uuid.uuid4()}',
            data=data,
            container_format='bare',
            disk_format='raw',
            validate_checksum=False,
            **properties,
        )

    return upload


@pytest.fixture(scope='module')
def region(admin):
    return next(each for each in admin.accelerator.deployables() if each.num_accelerators)


def program(admin, region, image):
    return admin.accelerator.patch_deployable(
        region.id, [{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image.id}]}]
    )


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


@pytest.fixture
def agent(identity, glance, tmp_path):
    """What an agent makes of [glance], with the credentials of somebody."""

    def make(name='admin', more='', **options_of_agent):
        login = identity.credentials(name)
        (tmp_path / 'cyborg.conf').write_text(
            SETTINGS.format(
                url=identity.url,
                region=REGION,
                username=login['username'],
                password=login['password'],
            ).replace('admins', PEOPLE[name][1])
            + more
        )
        conf = cfg.ConfigOpts()
        options.register(conf)
        conf(['--config-file', str(tmp_path / 'cyborg.conf')])
        conf.set_override('state_path', str(tmp_path))
        for option, value in options_of_agent.items():
            conf.set_override(option, value, 'agent')
        return Bitstreams(conf, 'compute1', Glance.connect(conf))

    return make


@pytest.fixture
def member(identity, glance):
    connection = identity.connect('member')
    yield connection
    connection.close()


def fetched(bitstreams, project=None, region_types=(), **image):
    with bitstreams.fetched(
        WantedImage(image, region_types=region_types, project_id=project)
    ) as found:
        return found.uuid, found.path.read_bytes()


def test_an_image_is_found_by_each_of_its_names(agent, upload):
    function, other, name = (str(uuid.uuid4()) for _ in range(3))
    image = upload(
        gbs(),
        **{
            'function_uuid': function.upper(),
            'region_uuid': REGION_TYPE,
            'bs-name': name,
            'accel:function_name': f'of {name}',
        },
    )
    upload(b'other', function_uuid=function, region_uuid=other)
    bitstreams = agent()
    for asked in (
        {'bitstream_id': image.id},
        {'bitstream_name': image.name},
        {'bitstream_name': name},
        {'function_name': f'of {name}'},
        {'function_id': function},
        {'function_id': function.replace('-', '')},
    ):
        assert fetched(bitstreams, region_types=[REGION_TYPE], **asked) == (image.id, gbs())
    with pytest.raises(errors.ImageRefused, match='2 images match: '):
        fetched(bitstreams, function_id=function)
    with pytest.raises(errors.ImageRefused, match='no active image'):
        fetched(bitstreams, bitstream_name=other)


def test_both_spellings_of_a_property_are_found(agent, upload):
    function = str(uuid.uuid4())
    image = upload(gbs(), **{'accel:function_id': function.replace('-', '')})
    assert fetched(agent(), function_id=function) == (image.id, gbs())


def test_more_images_than_a_page_are_found(agent, upload, monkeypatch):
    from glanceclient.v2 import images

    monkeypatch.setattr(images, 'DEFAULT_PAGE_SIZE', 2)
    name = str(uuid.uuid4())
    for _ in range(3):
        upload(b'x', function_name=name)
    with pytest.raises(errors.ImageRefused, match='3 images match: '):
        fetched(agent(), function_name=name)


@pytest.mark.parametrize('name', ['in:a,b', 'in:', 'a,b', '50 % & more=less', 'x' * 255])
def test_names_that_mean_something_to_glance_are_only_names(agent, admin, name):
    with pytest.raises(errors.ImageRefused, match='no active image|does not accept'):
        fetched(agent(), bitstream_name=name)
    if name.startswith('in:'):
        return
    image = admin.image.create_image(
        name, data=b'x', container_format='bare', disk_format='raw', validate_checksum=False
    )
    assert fetched(agent(), bitstream_name=name) == (image.id, b'x')


def test_a_project_gets_what_it_owns_accepted_or_what_is_public(
    agent, admin, member, identity, upload
):
    mine, name = identity.projects['mine'], str(uuid.uuid4())
    image = upload(gbs(), function_name=name, visibility='private')
    bitstreams = agent()

    def is_found():
        try:
            return fetched(bitstreams, mine, function_name=name) == (image.id, gbs())
        except errors.ImageRefused:
            return False

    assert not is_found()
    with pytest.raises(errors.ImageRefused, match='cannot see it'):
        fetched(bitstreams, mine, bitstream_id=image.id)
    admin.image.update_image(image, visibility='shared')
    admin.image.add_member(image, member_id=mine)
    assert not is_found()
    assert fetched(bitstreams, mine, bitstream_id=image.id) == (image.id, gbs())
    member.image.update_member(mine, image, status='accepted')
    assert is_found()
    admin.image.update_image(image, visibility='community')
    assert not is_found()
    assert fetched(bitstreams, mine, bitstream_id=image.id) == (image.id, gbs())
    admin.image.update_image(image, visibility='public')
    assert is_found()


def test_a_user_who_is_no_administrator_finds_what_he_sees(agent, upload, identity):
    name, mine = str(uuid.uuid4()), identity.projects['mine']
    image = upload(gbs(), function_name=name, visibility='public')
    upload(gbs(), function_name=name, visibility='private')
    assert fetched(agent('member'), mine, function_name=name) == (image.id, gbs())
    # the role "service" alone reads nothing
    with pytest.raises(errors.Unavailable, match=r'the user of \[glance\] search for images'):
        fetched(agent('cyborg'), mine, function_name=name)


def test_an_image_of_servers_says_what_they_need(agent, upload, identity):
    image = upload(b'a disk', **{'accel:bitstream_id': FUNCTION, 'visibility': 'public'})
    assert agent().vm_image_request(image.id, identity.projects['mine']) == {
        'bitstream_id': FUNCTION
    }


def test_a_cached_image_is_not_used_after_it_was_deleted(agent, admin, upload, tmp_path):
    image = upload(gbs())
    bitstreams = agent(bitstream_cache_size=1)
    assert fetched(bitstreams, bitstream_id=image.id) == (image.id, gbs())
    [entry] = (tmp_path / 'images-compute1').iterdir()
    assert entry.read_bytes() == gbs()
    admin.image.delete_image(image.id)
    with pytest.raises(errors.ImageRefused, match='Glance does not have it'):
        fetched(bitstreams, bitstream_id=image.id)


def test_credentials_that_are_not_accepted_are_an_error(agent, upload, caplog):
    image = upload(gbs())
    bitstreams = agent(more='password = wrong\n')
    with pytest.raises(errors.Unavailable) as caught:
        fetched(bitstreams, bitstream_id=image.id)
    assert caught.value.faultstring == 'Glance cannot be reached.'
    assert 'does not accept the credentials of [glance]' in caplog.text


def test_an_address_with_a_version_will_do(agent, upload, glance):
    image = upload(gbs())
    bitstreams = agent(more=f'endpoint_override = {glance.url}/v2\n')
    assert fetched(bitstreams, bitstream_name=image.name) == (image.id, gbs())


@pytest.mark.clients
def test_the_command_loads_an_image(admin, identity, region, upload):
    openstack = Commands(
        'openstackclient',
        {
            'OS_AUTH_TYPE': 'password',
            'OS_PROJECT_NAME': 'admins',
            'OS_REGION_NAME': REGION,
            'OS_PROJECT_DOMAIN_ID': 'default',
            'OS_USER_DOMAIN_ID': 'default',
            **{
                f'OS_{name.upper()}': value for name, value in identity.credentials('admin').items()
            },
        },
    )
    image = upload(gbs(FIRST_FUNCTION))
    told = openstack('deployable', 'program', region.id, image.id)
    assert region.id in told.values()
    assert shown(admin, region)['bitstream_id'] == image.id
    with pytest.raises(Failed, match='the image is not recognized'):
        openstack('deployable', 'program', region.id, upload(b'noise').id)
