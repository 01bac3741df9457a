# SPDX-License-Identifier: Apache-2.0
"""How many accelerator requests a project may have, whichever way they are created."""

import json
import uuid

import pytest
from oslo_limit import limit

import os_acc
from tests.fixtures import limits
from tests.fixtures.persons import Person, trusting_cloud

# the SDK warns of what it does itself
pytestmark = pytest.mark.filterwarnings('ignore::PendingDeprecationWarning')
ARQS = '/accelerator_requests'


@pytest.fixture(scope='module')
def served(tmp_path_factory):
    made = trusting_cloud(tmp_path_factory.mktemp('cloud'), more=limits.SETTINGS)
    made.start()
    made.session.headers['X-Auth-Token'] = 'admin:admins'
    made.host('compute1')
    made.profile('one', {'resources:FPGA': '1'})
    made.profile('two', {'resources:FPGA': '2'})
    yield made
    made.stop()


@pytest.fixture
def cloud(served, monkeypatch):
    """Whose conductor connects for each request, since each test has another Keystone."""
    monkeypatch.setattr(
        'cyborg.clients.limits.KeystoneLimits._connected',
        lambda self: limit.Enforcer(lambda *args: {}, cache=False),
    )
    yield served
    for project in ('mine', 'other'):
        person = Person(served, project=project, vouched=True)
        for arq in person.get(ARQS)['arqs']:
            assert person.call('DELETE', f'{ARQS}/{arq["uuid"]}').status_code == 204


@pytest.fixture
def mine(cloud):
    return Person(cloud)


def create(person, name='one', **headers):
    headers |= {'X-Auth-Token': f'{person.role}:{person.project}'}
    return person.cloud.call('POST', ARQS, json={'device_profile_name': name}, headers=headers)


def sentence(answer):
    return json.loads(answer.json()['error_message'])['faultstring']


def test_a_project_has_as_many_requests_as_its_limit_says(cloud, mine):
    with limits.told(3):
        assert create(mine, 'two').status_code == 201
        refused = create(mine, 'two')
        assert refused.status_code == 403
        assert sentence(refused).startswith(
            'Project mine has 2 accelerator requests and may have 3: 2 more are too many.'
        )
        # none of the two was made
        assert len(mine.get(ARQS)['arqs']) == 2
        assert create(mine).status_code == 201
        # other projects have their own
        assert create(Person(cloud, project='other'), 'two').status_code == 201
        # what is deleted counts no longer
        [arq, *_] = mine.get(ARQS)['arqs']
        assert create(mine).status_code == 403
        assert mine.call('DELETE', f'{ARQS}/{arq["uuid"]}').status_code == 204
        assert create(mine).status_code == 201


def test_a_limit_that_is_not_registered_lets_nobody_create(mine):
    with limits.told():
        refused = create(mine)
    assert refused.status_code == 403
    assert 'may have 0' in sentence(refused)


def test_a_repeated_post_is_answered_though_the_limit_is_reached(mine):
    key = {'Idempotency-Key': str(uuid.uuid4())}
    with limits.told(1):
        first, second = create(mine, **key), create(mine, **key)
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json() == second.json()
        assert create(mine).status_code == 403
    with limits.unanswered():
        assert create(mine, **key).json() == first.json()


def test_without_keystone_nothing_is_created_and_the_answer_says_why(mine):
    with limits.unanswered():
        refused = create(mine)
    assert refused.status_code == 503
    assert 'cannot be read from Keystone' in sentence(refused)
    assert '[conductor] limit_requests = false' in sentence(refused)
    assert mine.get(ARQS)['arqs'] == []


def test_a_plug_is_limited_too_and_what_is_plugged_stays(cloud, mine):
    os_acc.initialize(cloud.standalone.conf, host='compute1', transport=cloud.standalone.transport)
    instance = {'uuid': str(uuid.uuid4()), 'name': 'vm', 'project_id': 'mine'}
    plug = {'uuid': cloud.rp()}, {'accel:device_profile': 'two'}
    with limits.told(1), pytest.raises(os_acc.errors.PlugFailed, match='may have 1: 2 more'):
        os_acc.plug(instance, *plug)
    assert mine.get(ARQS)['arqs'] == []
    with limits.told(2):
        plugged = os_acc.plug(instance, *plug)
        # a repetition makes nothing
        assert os_acc.plug(instance, *plug) == plugged
    with limits.unanswered():
        assert os_acc.plug(instance, *plug) == plugged
    assert os_acc.unplug(instance) == 2
