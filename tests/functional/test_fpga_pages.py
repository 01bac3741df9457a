# SPDX-License-Identifier: Apache-2.0
"""The pages about FPGAs, command by command as they stand there, and what goes wrong beside them.

Keystone, Glance, Placement and the ``openstack`` command are real, the host and Nova simulated.
"""

import pathlib

import pytest
import requests
from keystoneauth1 import session

from tests.fixtures import pages
from tests.fixtures.cloud import eventually
from tests.fixtures.commands import Commands, Failed
from tests.fixtures.fpga import (
    ADDRESS,
    FIRST_FUNCTION,
    FUNCTION,
    NOTHING,
    REGION_TYPE,
    gbs,
)
from tests.fixtures.neighbours import Neighbourhood
from tests.fixtures.servers import BindingFailed, Server
from tools.services import packages

pytestmark = [
    pytest.mark.keystone,
    pytest.mark.clients,
    # the SDK warns of what it does itself
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
    pytest.mark.filterwarnings('ignore::ResourceWarning'),
]

#: page -> what is loaded while it is followed; what a failed bind held is cleaned, too
PAGES = {
    'user/guide.rst': [],
    'user/fpga-as-a-service.rst': ['own.gbs', 'blank.gbs', 'blank.gbs'],
    'user/preprogrammed-functions.rst': ['gzip.gbs'],
    'user/functions-on-request.rst': ['crypto.gbs', 'blank.gbs'],
}
#: the files that the pages name, by what they do
FILES = {
    'own.gbs': '5b9e8a02-7c4d-4e5f-8a36-1f0d2c3b4a59',
    'gzip.gbs': FUNCTION,
    'crypto.gbs': 'c3a1f2de-5b77-4c0e-9a51-6d20f4e8b713',
    'blank.gbs': NOTHING,
}
REGION = f'compute1_{ADDRESS}_region0'


@pytest.fixture(scope='module')
def around(identity, glance, tmp_path_factory):
    for program in ('curl', 'jq'):
        packages.require(program, program)
    directory = tmp_path_factory.mktemp('cloud')
    for name, function in FILES.items():
        (directory / name).write_bytes(gbs(function))
    settings = ''.join(map(pages.configuration, PAGES)).replace('/etc/cyborg', str(directory))
    made = Neighbourhood(identity, glance.url, directory, settings)
    with made.running() as running:
        connection = identity.connect('admin')
        disk = connection.image.create_image(
            'debian-12',
            data=b'a disk',
            container_format='bare',
            disk_format='raw',
            visibility='public',
            validate_checksum=False,
        )
        yield running
        connection.image.delete_image(disk)
        connection.close()


@pytest.fixture
def admin(around, identity):
    connection = identity.connect('admin')
    yield connection
    connection.close()


@pytest.fixture
def openstack(around):
    return Commands('openstackclient', around.environ | {'OS_CLOUD': 'operator'})


@pytest.fixture(autouse=True)
def nothing_is_left(around, admin):
    """Whatever a test does, the region is free after it, and nothing stays on the host."""
    yield
    around.gate.refuse = None
    eventually(lambda: published(around)['inventories']['FPGA']['reserved'] == 0)
    assert shown(admin)['program_image'] is None
    assert shown(admin)['quarantine_reason'] is None
    assert list(admin.accelerator.accelerator_requests()) == []
    directory = pathlib.Path(around.directory)
    assert not [path.name for path in directory.rglob('bitstream-*')]
    # somebody else can have it
    server = Server(around.compute.cloud_of(token(around, 'foreigner')), any_fpga(admin))
    server.create('compute1')
    server.delete()


def any_fpga(admin):
    name = 'any'
    if not admin.accelerator.get('/device_profiles', params={'name': name}).json()[
        'device_profiles'
    ]:
        admin.accelerator.create_device_profile(name=name, groups=[{'resources:FPGA': '1'}])
    return name


def token(around, person):
    return session.Session(auth=around.identity.auth(person)).get_token()


def published(around):
    return around.cloud.providers()[REGION]


def functions(around):
    """The functions that Placement knows of the region."""
    return {trait for trait in published(around)['traits'] if '_FUNCTION_' in trait}


def trait(function):
    return f'CUSTOM_FPGA_INTEL_FUNCTION_{function.upper().replace("-", "_")}'


def shown(admin):
    """The region, with all that the newest version of the API tells."""
    [found] = admin.accelerator.get(
        '/deployables', params={'name': REGION}, microversion='2.8'
    ).json()['deployables']
    return found


# -- the pages -------------------------------------------------------------------------------


@pytest.mark.parametrize('page', PAGES)
def test_a_page_says_what_happens(around, page):
    before = len(around.host.loaded)
    steps = list(pages.steps(page))
    assert len(steps) > 5
    with pages.Shell(around.directory, around.environ) as shell:
        for step in steps:
            shell.follow(step)
    # nothing else was loaded
    loaded = around.host.loaded[before:]
    assert [path.endswith('blank.gbs') for path in loaded] == [
        name == 'blank.gbs' for name in PAGES[page]
    ]


# -- images that are not loaded ----------------------------------------------------------------


@pytest.fixture
def upload(admin):
    made = []

    def upload(function, person=None, **properties):
        connection = person or admin
        image = connection.image.create_image(
            f'bits-{len(made)}',
            data=gbs(function),
            container_format='bare',
            disk_format='raw',
            validate_checksum=False,
            **{'region_uuid': REGION_TYPE, 'function_uuid': function} | properties,
        )
        made.append((connection, image.id))
        return image.id

    yield upload
    for connection, image in made:
        connection.image.delete_image(image)


def program(openstack, admin, image):
    return openstack('deployable', 'program', shown(admin)['uuid'], image)


def require_refused(around, openstack, admin, image, sentence):
    """The command shows why, the deployable remembers it, and the region does what it did."""
    before, loaded = functions(around), len(around.host.loaded)
    with pytest.raises(Failed, match=sentence):
        program(openstack, admin, image)
    assert sentence in shown(admin)['program_error']
    assert (functions(around), len(around.host.loaded)) == (before, loaded)


def test_an_image_that_is_damaged_in_glance_is_not_loaded(around, glance, openstack, admin, upload):
    image = upload(FUNCTION)
    [path] = glance.directory.glob(f'images/**/{image}')
    path.write_bytes(path.read_bytes().replace(b'bits', b'bats'))
    require_refused(around, openstack, admin, image, 'its data does not match its sha512 hash')


@pytest.mark.parametrize(
    'status, sentence',
    [
        (401, 'Glance does not accept the credentials'),
        (404, 'Glance does not have it, or does not show it to this host.'),
        (503, 'Glance answered 503.'),
    ],
)
def test_what_glance_answers_is_told(around, openstack, admin, upload, status, sentence):
    image = upload(FUNCTION)
    around.gate.refuse = status
    require_refused(around, openstack, admin, image, sentence)


def test_what_is_loaded_is_told_and_published(around, openstack, admin, upload):
    image = upload(FIRST_FUNCTION)
    assert program(openstack, admin, image)['name'] == REGION
    assert (shown(admin)['bitstream_id'], shown(admin)['program_error']) == (image, None)
    eventually(lambda: functions(around) == {trait(FIRST_FUNCTION)})


# -- binds that fail ---------------------------------------------------------------------------


@pytest.fixture
def profile(admin):
    made = []

    def profile(**accel):
        group = {'resources:FPGA': '1'} | {f'accel:{key}': value for key, value in accel.items()}
        found = admin.accelerator.create_device_profile(name=f'p-{len(made)}', groups=[group])
        made.append(found.id)
        return found.name

    yield profile
    for uuid in made:
        admin.accelerator.delete_device_profile(uuid, ignore_missing=False)


def refusal(around, profile, person='member'):
    """Why a server of somebody's is not built, as they can read it afterwards."""
    with requests.Session() as http:
        http.headers.update(
            {
                'X-Auth-Token': token(around, person),
                'OpenStack-API-Version': 'accelerator 2.6',
            }
        )
        server = Server(around.compute.cloud_of(http.headers['X-Auth-Token']), profile)
        with pytest.raises(BindingFailed) as caught:
            server.create('compute1')
        server.delete()
        [arq] = caught.value.uuids
        url = f'{around.served.url}/accelerator_requests/{arq}'
        assert http.get(url).status_code == 404
        steps = http.get(f'{url}/history').json()['history']
    [failed] = [step for step in steps if step['event'] == 'failed']
    assert failed['reason'] in str(caught.value)
    return failed['reason']


def test_an_image_of_another_project_is_not_loaded(around, admin, upload, profile):
    image = upload(FUNCTION, visibility='private')
    loaded = len(around.host.loaded)
    mine = around.identity.projects['mine']
    assert refusal(around, profile(bitstream_id=image)) == (
        f'Image {image} is not loaded: project {mine} cannot see it.'
    )
    assert len(around.host.loaded) == loaded


def test_a_function_of_several_images_is_not_guessed(around, admin, upload, profile):
    function = FILES['own.gbs']
    images = [upload(function, visibility='public') for _ in range(2)]
    loaded = len(around.host.loaded)
    reason = refusal(around, profile(function_id=function))
    assert '2 images match: ' in reason
    assert all(image in reason for image in images)
    assert len(around.host.loaded) == loaded


def test_a_server_fails_while_glance_is_away_and_not_afterwards(around, admin, upload, profile):
    function = FILES['own.gbs']
    upload(function, visibility='public')
    name = profile(function_id=function, cleaning='full')
    around.gate.refuse = 503
    assert 'Glance answered 503.' in refusal(around, name)
    around.gate.refuse = None
    server = Server(around.compute.cloud_of(token(around, 'member')), name)
    server.create('compute1')
    eventually(lambda: functions(around) == {trait(function)})
    server.delete()
    eventually(lambda: functions(around) == set())
