# SPDX-License-Identifier: Apache-2.0
"""Device profiles over time: changed, put out of use, kept for some projects."""

import threading
import uuid
from concurrent import futures

import pytest

from tests.fixtures.cloud import Cloud

GROUP = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    made = Cloud(tmp_path_factory.mktemp('cloud'))
    made.start()
    made.host('compute1')
    yield made
    made.stop()


@pytest.fixture
def name():
    """A name that no other test uses."""
    return f'profile-{uuid.uuid4()}'


def change(cloud, ref, **changes):
    response = cloud.call('PATCH', f'/device_profiles/{ref}', json=changes)
    assert response.status_code == 200, response.text
    return response.json()['device_profile']


def test_a_request_keeps_the_group_that_it_was_made_with(cloud, name):
    profile = cloud.profile(name, GROUP)
    [before] = cloud.request(name)
    change(cloud, name, name=f'{name}-b', groups=[{'resources:PGPU': '2'}])
    # the request goes by the new name, and is still for what it was made for
    [after] = [arq for arq in cloud.arqs() if arq['uuid'] == before['uuid']]
    assert after == before | {'device_profile_name': f'{name}-b'}
    assert cloud.bind(after).status_code == 202
    assert len(cloud.request(f'{name}-b')) == 2
    assert (
        cloud.call('POST', '/accelerator_requests', json={'device_profile_name': name}).status_code
        == 404
    )
    assert cloud.call('DELETE', f'/device_profiles/{profile["uuid"]}').status_code == 409


def test_groups_and_what_they_ask_for_stay_in_their_order(cloud, name):
    groups = [
        {'trait:CUSTOM_Z': 'required', 'resources:FPGA': '1', 'accel:attach_target': 'VM'},
        {'resources:PGPU': '1', 'trait:CUSTOM_B': 'required', 'trait:CUSTOM_A': 'forbidden'},
    ]
    made = cloud.profile(name, *groups)
    shown = cloud.get(f'/device_profiles/{name}')['device_profile']
    [listed] = cloud.get(f'/device_profiles?name={name}')['device_profiles']
    for profile in (made, shown, listed):
        assert [list(group.items()) for group in profile['groups']] == [
            list(group.items()) for group in groups
        ]


def test_a_disabled_profile_serves_those_who_have_it(cloud, name):
    cloud.profile(name, GROUP)
    [arq] = cloud.request(name)
    change(cloud, name, enabled=False)
    refused = cloud.call('POST', '/accelerator_requests', json={'device_profile_name': name})
    assert refused.status_code == 409
    assert 'is disabled' in refused.text
    assert cloud.bind(arq).status_code == 202
    assert cloud.unbind(arq).status_code == 202
    change(cloud, name, enabled=True)
    assert cloud.request(name)


def test_an_unchanged_field_stays_as_it_is(cloud, name):
    before = cloud.profile(name, GROUP)
    after = change(cloud, before['uuid'], description='new')
    assert after == before | {'description': 'new', 'updated_at': after['updated_at']}
    assert after['updated_at'] >= after['created_at']


@pytest.mark.parametrize('projects, shown', [(['b', 'a'], ['a', 'b']), ([], []), (None, None)])
def test_whom_a_profile_is_for_can_change(cloud, name, projects, shown):
    cloud.profile(name, GROUP)
    change(cloud, name, projects=['x', 'a'])
    assert change(cloud, name, projects=projects)['projects'] == shown
    assert cloud.get(f'/device_profiles/{name}')['device_profile']['projects'] == shown
    assert cloud.call('DELETE', f'/device_profiles/{name}').status_code == 204


@pytest.mark.parametrize('attempt', range(5))
def test_a_profile_goes_or_is_used_and_never_both(cloud, name, attempt):
    cloud.profile(name, GROUP)
    start = threading.Barrier(5)

    def use():
        start.wait()
        return cloud.call(
            'POST', '/accelerator_requests', json={'device_profile_name': name}
        ).status_code

    def remove():
        start.wait()
        return cloud.call('DELETE', f'/device_profiles/{name}').status_code

    with futures.ThreadPoolExecutor(5) as pool:
        users = [pool.submit(use) for _ in range(4)]
        removed = pool.submit(remove).result()
        used = {user.result() for user in users}
    assert (removed, used) in [(204, {404}), (409, {201})]


def test_of_two_that_want_a_name_one_gets_it(cloud, name):
    for letter in 'ab':
        cloud.profile(f'{name}-{letter}', GROUP)
    start = threading.Barrier(2)

    def rename(letter):
        start.wait()
        return cloud.call(
            'PATCH',
            f'/device_profiles/{name}-{letter}',
            json={'name': name, 'projects': ['p', letter]},
        ).status_code

    with futures.ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(rename, 'ab')) == [200, 409]
