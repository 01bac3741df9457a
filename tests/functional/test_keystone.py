# SPDX-License-Identifier: Apache-2.0
"""Policies with a real Keystone and openstacksdk: every cell of the table of roles."""

import uuid

import pytest
import requests
from openstack import exceptions

from tests.fixtures.commands import Commands, Failed
from tests.fixtures.fpga import FpgaHost, gbs
from tests.fixtures.identity import PEOPLE as ALL_PEOPLE
from tests.fixtures.identity import REGION, Served, forget_options

pytestmark = [
    pytest.mark.keystone,
    # the SDK warns of what it does itself
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
    pytest.mark.filterwarnings('ignore::ResourceWarning'),
]

GROUP = {'resources:FPGA': '1'}
PEOPLE = ('admin', 'manager', 'member', 'reader', 'service')
READERS = {'admin', 'manager', 'member', 'reader'}
MANAGERS = {'admin', 'manager'}
MEMBERS_AND_SERVICES = {'admin', 'manager', 'member', 'service'}
ADMINS = {'admin'}


@pytest.fixture(scope='module')
def cloud(identity, tmp_path_factory):
    made = identity.cloud(tmp_path_factory.mktemp('cloud'))
    made.start()
    made.host('compute1')
    made.host('compute2', make=FpgaHost)
    with Served(made, identity) as served:
        made.endpoint = served.url
        yield made
    made.stop()
    forget_options()


@pytest.fixture(scope='module')
def connect(cloud, identity):
    """The SDK's proxy as somebody, each made once."""
    made = {}

    def get(name, voucher=None, **scope):
        key = name, voucher, *scope.items()
        if key not in made:
            made[key] = identity.connect(name, voucher, **scope)
        return made[key].accelerator

    yield get
    for connection in made.values():
        connection.close()


@pytest.fixture
def admin(connect):
    return connect('admin')


@pytest.fixture
def member(connect):
    return connect('member')


def new_name():
    return f'p-{uuid.uuid4()}'


@pytest.fixture
def profile(admin):
    return admin.create_device_profile(name=new_name(), groups=[GROUP])


@pytest.fixture
def arq(member, profile):
    """A request of a member's."""
    return member.create_accelerator_request(device_profile_name=profile.name)


@pytest.fixture
def provider(admin):
    return next(
        each['rp_uuid']
        for each in admin.get('/deployables').json()['deployables']
        if each['name'].startswith('compute1_')
    )


@pytest.fixture
def bound(connect, arq, provider):
    """One that is bound, and let go afterwards."""
    nova = connect('member', 'nova')
    bind(nova, arq, provider)
    yield nova.get_accelerator_request(arq.id)
    nova.delete('/accelerator_requests', params={'arqs': arq.id})


def add(values):
    return [{'op': 'add', 'path': f'/{name}', 'value': value} for name, value in values.items()]


def bind(sdk, arq, provider, **more):
    sdk.update_accelerator_request(
        arq.id,
        add(
            {'hostname': 'compute1', 'device_rp_uuid': provider, 'instance_uuid': str(uuid.uuid4())}
            | more
        ),
    )


def unbind(sdk, arq):
    sdk.update_accelerator_request(
        arq.id,
        [
            {'op': 'remove', 'path': f'/{name}'}
            for name in ('hostname', 'device_rp_uuid', 'instance_uuid')
        ],
    )


def checked(response):
    exceptions.raise_from_response(response)
    return response


# -- the table -------------------------------------------------------------------------------
# Each is done by one person, the SDK's proxy; what needs a service token has one.


def list_profiles(sdk, things):
    list(sdk.device_profiles())


def show_profile(sdk, things):
    sdk.get_device_profile(things('profile').id)


def create_profile(sdk, things):
    sdk.create_device_profile(name=new_name(), groups=[GROUP])


def delete_profile(sdk, things):
    sdk.delete_device_profile(things('profile').id, ignore_missing=False)


def change_profile(sdk, things):
    checked(
        sdk.patch(
            f'/device_profiles/{things("profile").id}', json={'enabled': False}, microversion='2.5'
        )
    )


def create_arq(sdk, things):
    sdk.create_accelerator_request(device_profile_name=things('profile').name)


def list_arqs(sdk, things):
    list(sdk.accelerator_requests())


def list_arqs_of_a_server(sdk, things):
    checked(sdk.get('/accelerator_requests', params={'instance': str(uuid.uuid4())}))


def show_arq(sdk, things):
    sdk.get_accelerator_request(things('arq').id)


def bind_arq(sdk, things):
    bind(sdk, things('arq'), things('provider'))


def unbind_arq(sdk, things):
    unbind(sdk, things('bound'))


def delete_arq(sdk, things):
    sdk.delete_accelerator_request(things('arq').id, ignore_missing=False)


def delete_arqs_of_a_server(sdk, things):
    checked(sdk.delete('/accelerator_requests', params={'instance': things('bound').instance_uuid}))


def list_devices(sdk, things):
    list(sdk.devices())


def show_device(sdk, things):
    sdk.get_device(things('admin').get('/devices').json()['devices'][0]['uuid'])


def enable_device(sdk, things):
    device = things('admin').get('/devices').json()['devices'][0]['uuid']
    checked(sdk.post(f'/devices/{device}/enable'))


def disable_device(sdk, things):
    device = things('admin').get('/devices').json()['devices'][0]['uuid']
    try:
        checked(sdk.post(f'/devices/{device}/disable'))
    finally:
        checked(things('admin').post(f'/devices/{device}/enable'))


def list_deployables(sdk, things):
    list(sdk.deployables())


def show_deployable(sdk, things):
    sdk.get_deployable(next(things('admin').deployables()).id)


def program_deployable(sdk, things):
    region = next(each for each in things('admin').deployables() if 'region0' in each.name)
    image = things('cloud').glance.add(gbs())
    sdk.patch_deployable(
        region.id, [{'path': '/program', 'op': 'replace', 'value': [{'image_uuid': image}]}]
    )


def list_attributes(sdk, things):
    list(sdk.attributes())


def show_attribute(sdk, things):
    sdk.get_attribute(next(things('admin').attributes()).id)


def create_attribute(sdk, things):
    sdk.create_attribute(deployable_id=next(things('admin').deployables()).id, key='k', value='v')


def delete_attribute(sdk, things):
    admin = things('admin')
    made = admin.create_attribute(deployable_id=next(admin.deployables()).id, key='k', value='v')
    sdk.delete_attribute(made.id, ignore_missing=False)


def list_agents(sdk, things):
    checked(sdk.get('/agents', microversion='2.4'))


def show_agent(sdk, things):
    checked(sdk.get('/agents/compute1', microversion='2.4'))


TABLE = {
    list_profiles: READERS,
    show_profile: READERS,
    create_profile: ADMINS,
    delete_profile: ADMINS,
    change_profile: ADMINS,
    list_arqs: READERS,
    list_arqs_of_a_server: READERS,
    show_arq: READERS,
    create_arq: MEMBERS_AND_SERVICES,
    bind_arq: MEMBERS_AND_SERVICES,
    unbind_arq: MEMBERS_AND_SERVICES,
    delete_arq: MEMBERS_AND_SERVICES,
    delete_arqs_of_a_server: MEMBERS_AND_SERVICES,
    list_devices: MANAGERS,
    show_device: MANAGERS,
    enable_device: ADMINS,
    disable_device: ADMINS,
    list_deployables: MANAGERS,
    show_deployable: MANAGERS,
    program_deployable: ADMINS,
    list_attributes: MANAGERS,
    show_attribute: MANAGERS,
    create_attribute: ADMINS,
    delete_attribute: ADMINS,
    list_agents: ADMINS,
    show_agent: ADMINS,
}


@pytest.mark.parametrize('person', PEOPLE)
@pytest.mark.parametrize('action', TABLE, ids=lambda action: action.__name__)
def test_each_person_may_do_what_the_table_says(connect, request, action, person):
    sdk = connect(person, 'nova')
    if person in TABLE[action]:
        action(sdk, request.getfixturevalue)
    else:
        with pytest.raises(exceptions.ForbiddenException, match='cyborg:'):
            action(sdk, request.getfixturevalue)


@pytest.mark.parametrize('action', TABLE, ids=lambda action: action.__name__)
def test_a_token_of_the_system_is_refused(connect, request, action):
    with pytest.raises(exceptions.ForbiddenException):
        action(connect('admin', 'nova', system_scope='all'), request.getfixturevalue)


# -- whose it is -----------------------------------------------------------------------------


def test_requests_of_others_are_not_there(connect, member, admin, arq):
    foreigner = connect('foreigner')
    for person, sees in (
        (member, True),
        (connect('reader'), True),
        (admin, True),
        (foreigner, False),
    ):
        assert (arq.id in [each.id for each in person.accelerator_requests()]) is sees
    for action in (
        foreigner.get_accelerator_request,
        lambda each: foreigner.delete_accelerator_request(each, False),
    ):
        with pytest.raises(exceptions.NotFoundException):
            action(arq.id)
    assert member.get_accelerator_request(arq.id).state == 'Initial'


def test_nova_may_act_for_an_administrator_on_anybodys_requests(connect, bound, admin, identity):
    # as at an evacuation: an administrator's token, of another project, and Nova's
    nova = connect('admin', 'nova')
    shown = nova.get('/accelerator_requests', params={'instance': bound.instance_uuid}).json()
    assert [each['uuid'] for each in shown['arqs']] == [bound.id]
    assert shown['arqs'][0]['project_id'] == identity.projects['mine']


def test_a_bind_makes_a_request_the_binders(connect, arq, provider, admin, identity):
    bind(connect('admin', 'nova'), arq, provider)
    shown = admin.get(f'/accelerator_requests/{arq.id}').json()
    assert shown['project_id'] == identity.projects['admins']
    with pytest.raises(exceptions.NotFoundException):
        connect('member').get_accelerator_request(arq.id)
    connect('admin', 'nova').delete_accelerator_request(arq.id, ignore_missing=False)


@pytest.mark.parametrize(
    'person, version, status',
    [('admin', '2.1', 202), ('admin', '2.0', 406), ('member', '2.1', 403)],
)
def test_only_administrators_say_whose_a_bound_request_is(
    connect, arq, provider, identity, person, version, status
):
    nova = connect(person, 'nova')
    body = {
        arq.id: add(
            {
                'hostname': 'compute1',
                'device_rp_uuid': provider,
                'instance_uuid': str(uuid.uuid4()),
                'project_id': identity.projects['other'],
            }
        )
    }
    answer = nova.patch('/accelerator_requests', json=body, microversion=version)
    assert answer.status_code == status
    shown = connect('admin').get(f'/accelerator_requests/{arq.id}').json()
    if status == 202:
        assert shown['project_id'] == identity.projects['other']
        connect('admin', 'nova').delete_accelerator_request(arq.id, ignore_missing=False)
    else:
        assert shown['state'] == 'Initial'


def test_a_private_profile_is_for_its_projects(connect, admin, identity):
    made = checked(
        admin.post(
            '/device_profiles',
            microversion='2.5',
            json=[{'name': new_name(), 'groups': [GROUP], 'projects': [identity.projects['mine']]}],
        )
    ).json()
    names = {
        person: [each.name for each in connect(person).device_profiles()]
        for person in ('admin', 'reader', 'foreigner')
    }
    assert {person: made['name'] in seen for person, seen in names.items()} == {
        'admin': True,
        'reader': True,
        'foreigner': False,
    }
    with pytest.raises(exceptions.NotFoundException):
        connect('foreigner', 'nova').create_accelerator_request(device_profile_name=made['name'])


# -- service tokens --------------------------------------------------------------------------

NEEDS = 'requires a service token'


def delete_bound(sdk, things):
    sdk.delete_accelerator_request(things('bound').id, ignore_missing=False)


@pytest.mark.parametrize('person', ['admin', 'member'])
@pytest.mark.parametrize('action', [bind_arq, unbind_arq, delete_arqs_of_a_server, delete_bound])
def test_what_would_pull_a_device_from_a_server_is_novas_to_do(connect, request, action, person):
    with pytest.raises(exceptions.ForbiddenException, match=NEEDS):
        action(connect(person), request.getfixturevalue)


def test_a_bound_request_is_deleted_by_its_uuid_with_a_service_token(connect, request):
    delete_bound(connect('member', 'nova'), request.getfixturevalue)


def test_what_is_not_bound_needs_no_service_token(member, profile):
    arq = member.create_accelerator_request(device_profile_name=profile.name)
    assert member.get_accelerator_request(arq.id).state == 'Initial'
    member.delete_accelerator_request(arq.id, ignore_missing=False)


def test_only_services_vouch(connect, arq, provider):
    # an administrator's token in the place of a service's
    with pytest.raises(exceptions.HttpException) as refused:
        bind(connect('member', 'admin'), arq, provider)
    assert refused.value.status_code == 401


# -- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'headers', [{}, {'X-Auth-Token': 'forged'}, {'X-Roles': 'admin', 'X-Project-Id': 'p'}]
)
def test_without_a_valid_token_there_is_no_answer(cloud, headers):
    answer = requests.get(f'{cloud.endpoint}/devices', headers=headers, timeout=60)
    assert answer.status_code == 401
    assert 'error_message' in answer.json()


@pytest.mark.parametrize('path', ['', '/', '/openapi.json'])
def test_what_tells_clients_their_way_needs_no_token(cloud, path):
    assert requests.get(f'{cloud.endpoint}{path}', timeout=60).status_code == 200


# -- the command -----------------------------------------------------------------------------


@pytest.fixture
def openstack(cloud, identity):
    """The openstack command, as one of the people."""

    def run(person, *words):
        credentials = identity.credentials(person) | {
            'project_name': ALL_PEOPLE[person][1],
            'project_domain_id': 'default',
            'region_name': REGION,
            'identity_api_version': '3',
        }
        environ = {f'OS_{name.upper()}': value for name, value in credentials.items()}
        return Commands('openstackclient', environ)(*words)

    return run


@pytest.mark.clients
def test_the_command_finds_us_by_the_catalog(openstack, profile, arq):
    devices = openstack('manager', 'device', 'list')
    assert [each['hostname'] for each in devices] == ['compute1', 'compute2']
    assert profile.name in [
        each['name'] for each in openstack('reader', 'device', 'profile', 'list')
    ]
    assert openstack('reader', 'arq', 'show', arq.id)['state'] == 'Initial'
    for person, words, sentence in (
        ('member', ('device', 'list'), 'cyborg:device:get_all'),
        ('foreigner', ('arq', 'show', arq.id), 'not found'),
        ('admin', ('arq', 'unbind', arq.id), NEEDS),
    ):
        with pytest.raises(Failed, match=sentence):
            openstack(person, *words)
