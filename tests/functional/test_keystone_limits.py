# SPDX-License-Identifier: Apache-2.0
"""The limit of accelerator requests, from a real Keystone: as its page for operators says."""

import json

import pytest
from oslo_limit import limit

from tests.fixtures.identity import REGION, Served, forget_options
from tests.fixtures.limits import NAME

pytestmark = [
    pytest.mark.keystone,
    # the SDK warns of what it does itself
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
    pytest.mark.filterwarnings('ignore::ResourceWarning'),
]

OPTIONS = """\
[conductor]
limit_requests = true
[oslo_limit]
auth_type = password
auth_url = {url}
username = cyborg
password = {password}
user_domain_id = default
system_scope = all
endpoint_region_name = {region}
"""
ARQS = '/accelerator_requests'


@pytest.fixture(scope='module')
def keystone(identity):
    """As an administrator of the cloud sees it."""
    made = identity.connect('admin', system_scope='all')
    yield made.identity
    made.close()


@pytest.fixture(scope='module')
def cloud(identity, keystone, tmp_path_factory):
    reader = keystone.find_role('reader')
    user = keystone.find_user('cyborg')
    keystone.assign_system_role_to_user(user, reader, 'all')
    options = OPTIONS.format(url=identity.url, password=identity.password, region=REGION)
    made = identity.cloud(tmp_path_factory.mktemp('cloud'), more=options)
    made.start()
    limit._SDK_CONNECTION = None
    with Served(made, identity):
        identity.connect('admin').accelerator.create_device_profile(
            name='two', groups=[{'resources:FPGA': '2'}]
        )
        yield made
    made.stop()
    limit._SDK_CONNECTION = None
    forget_options('oslo_limit')
    keystone.unassign_system_role_from_user(user, reader, 'all')


@pytest.fixture
def member(cloud, identity):
    made = identity.connect('member')
    yield made.accelerator
    for arq in made.accelerator.get(ARQS).json()['arqs']:
        made.accelerator.delete(f'{ARQS}/{arq["uuid"]}')
    made.close()


@pytest.fixture
def service(keystone):
    [found] = keystone.services(type='accelerator')
    return found.id


def create(member):
    return member.post(ARQS, json={'device_profile_name': 'two'})


def test_requests_are_limited_by_what_keystone_says(keystone, member, service, identity):
    # given nothing that is registered, nobody may create a request
    refused = create(member)
    assert refused.status_code == 403
    assert 'may have 0: 2 more' in json.loads(refused.json()['error_message'])['faultstring']
    # when a default limit is registered, it holds for each project
    default = keystone.create_registered_limit(
        service_id=service, region_id=REGION, resource_name=NAME, default_limit=3
    )
    assert create(member).status_code == 201
    assert create(member).status_code == 403
    # and a limit of the project takes its place at once
    own = keystone.create_limit(
        service_id=service,
        region_id=REGION,
        project_id=identity.projects['mine'],
        resource_name=NAME,
        resource_limit=4,
    )
    assert create(member).status_code == 201
    assert create(member).status_code == 403
    keystone.update_limit(own, resource_limit=-1)
    assert create(member).status_code == 201
    keystone.delete_limit(own)
    assert create(member).status_code == 403
    keystone.delete_registered_limit(default)


def test_a_user_who_may_not_read_limits_is_no_way_around_them(
    cloud, keystone, member, identity, monkeypatch
):
    """Its system role is removed, as if the operator had forgotten it."""
    reader, user = keystone.find_role('reader'), keystone.find_user('cyborg')
    keystone.unassign_system_role_from_user(user, reader, 'all')
    monkeypatch.setattr(limit, '_SDK_CONNECTION', None)
    monkeypatch.setattr(
        'cyborg.clients.limits.KeystoneLimits._connected',
        lambda self: limit.Enforcer(lambda *args: {}, cache=False),
    )
    refused = create(member)
    keystone.assign_system_role_to_user(user, reader, 'all')
    assert refused.status_code == 503
    assert 'cannot be read from Keystone' in refused.text
