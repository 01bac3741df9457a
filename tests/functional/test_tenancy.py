# SPDX-License-Identifier: Apache-2.0
"""Objects of other projects are not found, by any operation."""

import uuid

import pytest

from tests.fixtures.persons import Person, trusting_cloud

GROUP = {'resources:FPGA': '1'}


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    made = trusting_cloud(tmp_path_factory.mktemp('cloud'))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def admin(cloud):
    return Person(cloud, 'admin', 'admins')


@pytest.fixture
def mine(cloud):
    return Person(cloud)


@pytest.fixture
def other(cloud):
    return Person(cloud, project='other')


@pytest.fixture
def profile(admin):
    """A profile with a name of its own, for the projects that a test says."""

    def make(projects=None):
        name = f'p-{uuid.uuid4()}'
        response = admin.call(
            'POST',
            '/device_profiles',
            json=[{'name': name, 'groups': [GROUP], 'projects': projects}],
        )
        assert response.status_code == 201, response.text
        return response.json()

    return make


def request(person, profile):
    return person.call(
        'POST', '/accelerator_requests', json={'device_profile_name': profile['name']}
    )


# -- accelerator requests --------------------------------------------------------------------


@pytest.fixture
def arq(mine, profile):
    return request(mine, profile()).json()['arqs'][0]


@pytest.mark.parametrize('vouched', [False, True])
@pytest.mark.parametrize(
    'method, path',
    [
        ('GET', '/accelerator_requests/{}'),
        ('GET', '/accelerator_requests/{}/history'),
        ('DELETE', '/accelerator_requests/{}'),
        ('DELETE', '/accelerator_requests?arqs={}'),
    ],
)
def test_a_foreign_request_is_not_found(cloud, arq, vouched, method, path):
    stranger = Person(cloud, project='other', vouched=vouched)
    assert stranger.call(method, path.format(arq['uuid'])).status_code == 404


def test_a_service_on_its_own_account_is_held_to_no_project(cloud, arq):
    service = Person(cloud, 'service', 'services')
    assert service.call('DELETE', f'/accelerator_requests/{arq["uuid"]}').status_code == 204


@pytest.mark.parametrize('vouched', [False, True])
def test_a_foreign_request_is_in_no_list(cloud, mine, admin, arq, vouched):
    other = Person(cloud, project='other', vouched=vouched)

    def listed(person):
        return arq['uuid'] in [each['uuid'] for each in person.get('/accelerator_requests')['arqs']]

    assert (listed(mine), listed(other), listed(admin)) == (True, False, True)
    assert other.get(f'/accelerator_requests?project_id={arq["project_id"]}') == {'arqs': []}


def test_a_foreign_request_marks_no_page(mine, other, arq):
    url = f'/accelerator_requests?marker={arq["uuid"]}'
    assert mine.call('GET', url).status_code == 200
    foreign = other.call('GET', url)
    unknown = other.call('GET', f'/accelerator_requests?marker={uuid.uuid4()}')
    assert (foreign.status_code, unknown.status_code) == (400, 400)
    assert arq['uuid'] in foreign.text


def test_requests_of_others_are_not_unbound(cloud, arq):
    body = {arq['uuid']: [{'op': 'remove', 'path': '/hostname'}]}
    for person, status in (
        (Person(cloud, project='other'), 403),
        (Person(cloud, 'admin', 'admins'), 403),
        (Person(cloud, project='other', vouched=True), 404),
        (Person(cloud, 'admin', 'admins', vouched=True), 202),
    ):
        assert person.call('PATCH', '/accelerator_requests', json=body).status_code == status


# -- servers ---------------------------------------------------------------------------------


class Nova:
    """Acts on one server, in the name of whoever asked for it."""

    def __init__(self, cloud, profile):
        if 'compute1' not in cloud.hosts:
            cloud.host('compute1')
        self._cloud, self._profile, self.server = cloud, profile, str(uuid.uuid4())
        [self._part] = Person(cloud, 'admin').get('/deployables')['deployables']

    def bind(self, role='member', project='mine'):
        """Build the server, or evacuate it."""
        asked = Person(self._cloud, role, project, vouched=True)
        [arq] = request(asked, self._profile).json()['arqs']
        answer = asked.call(
            'PATCH',
            '/accelerator_requests',
            json={
                arq['uuid']: [
                    {'op': 'add', 'path': f'/{name}', 'value': value}
                    for name, value in (
                        ('hostname', 'compute1'),
                        ('device_rp_uuid', self._part['rp_uuid']),
                        ('instance_uuid', self.server),
                    )
                ]
            },
        )
        assert answer.status_code == 202, answer.text
        return arq['uuid']

    def requests(self, role='member', project='mine'):
        asked = Person(self._cloud, role, project, vouched=True)
        return [
            arq['uuid']
            for arq in asked.get(f'/accelerator_requests?instance={self.server}')['arqs']
        ]

    def delete(self, role='member', project='mine'):
        asked = Person(self._cloud, role, project, vouched=True)
        answer = asked.call('DELETE', f'/accelerator_requests?instance={self.server}')
        assert answer.status_code == 204, answer.text


@pytest.fixture
def nova(cloud, profile):
    made = Nova(cloud, profile())
    yield made
    made.delete('admin', 'admins')


def test_what_an_administrator_binds_for_a_server_is_its_owners(nova):
    nova.bind()
    # an evacuation
    nova.delete('admin', 'admins')
    evacuated = nova.bind('admin', 'admins')
    assert nova.requests() == [evacuated]
    assert nova.requests(project='other') == []


def test_who_deletes_a_server_deletes_all_that_it_holds(nova):
    nova.bind('admin', 'admins')
    assert nova.requests() == []
    nova.delete()
    assert nova.requests('admin', 'admins') == []


# -- device profiles -------------------------------------------------------------------------


def test_a_private_profile_is_there_for_its_projects_only(cloud, mine, other, admin, profile):
    private = profile(['mine', 'third'])
    for ref in (private['uuid'], private['name']):
        assert mine.get(f'/device_profiles/{ref}')['device_profile']['uuid'] == private['uuid']
        assert other.call('GET', f'/device_profiles/{ref}').status_code == 404
        assert admin.get(f'/device_profiles/{ref}')['device_profile'] == private
    by_name = f'/device_profiles?name={private["name"]}'
    assert len(mine.get(by_name)['device_profiles']) == 1
    assert other.get(by_name) == {'device_profiles': []}
    assert request(mine, private).status_code == 201
    assert request(other, private).status_code == 404
    assert request(admin, private).status_code == 201


def test_nova_sees_for_a_tenant_what_the_tenant_sees(cloud, profile):
    private = profile(['mine'])
    for project, status in (('mine', 201), ('other', 404)):
        nova = Person(cloud, project=project, vouched=True)
        assert request(nova, private).status_code == status
        found = nova.get(f'/device_profiles?name={private["name"]}', version='2.0')
        assert len(found['device_profiles']) == (status == 201)


def test_nobody_learns_which_others_a_profile_is_for(mine, admin, profile):
    private = profile(['mine', 'third'])
    assert private['projects'] == ['mine', 'third']
    url = f'/device_profiles/{private["uuid"]}'
    assert mine.get(url)['device_profile']['projects'] == ['mine']
    [listed] = mine.get(f'/device_profiles?name={private["name"]}')['device_profiles']
    assert listed['projects'] == ['mine']
    assert admin.get(url)['device_profile']['projects'] == ['mine', 'third']


def test_a_private_profile_marks_no_page_of_others(mine, other, profile):
    private = profile(['mine'])
    url = f'/device_profiles?marker={private["uuid"]}'
    assert mine.call('GET', url).status_code == 200
    assert other.call('GET', url).status_code == 400


def test_a_profile_for_no_project_is_for_administrators(mine, admin, profile):
    hidden = profile([])
    assert hidden['projects'] == []
    assert mine.call('GET', f'/device_profiles/{hidden["uuid"]}').status_code == 404
    assert request(admin, hidden).status_code == 201


def test_a_name_is_taken_even_if_one_does_not_see_by_whom(cloud, admin, profile):
    private = profile(['other'])
    taken = admin.call(
        'POST', '/device_profiles', json=[{'name': private['name'], 'groups': [GROUP]}]
    )
    assert taken.status_code == 409


def test_a_request_outlives_the_visibility_of_its_profile(mine, admin, profile):
    private = profile(['mine'])
    [arq] = request(mine, private).json()['arqs']
    assert (
        admin.call(
            'PATCH', f'/device_profiles/{private["uuid"]}', json={'projects': []}
        ).status_code
        == 200
    )
    assert mine.get(f'/accelerator_requests/{arq["uuid"]}') == arq
    assert request(mine, private).status_code == 404
