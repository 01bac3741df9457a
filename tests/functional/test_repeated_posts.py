# SPDX-License-Identifier: Apache-2.0
"""POSTs that are repeated with the same key: by clients, and by the API after a lost answer."""

import concurrent.futures
import datetime
import json
import uuid

import oslo_messaging as messaging
import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import Cloud

FPGA = {'resources:FPGA': '1'}
ARQS, PROFILES = '/accelerator_requests', '/device_profiles'
PROFILE = [{'name': 'new', 'groups': [FPGA]}]


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path)
    made.start()
    made.profile('one', FPGA)
    made.profile('two', {'resources:FPGA': '2'})
    yield made
    made.stop()


@pytest.fixture
def key():
    return {'Idempotency-Key': str(uuid.uuid4())}


def create(cloud, headers, name='two'):
    return cloud.call('POST', ARQS, json={'device_profile_name': name}, headers=headers)


def sentence(answer):
    return json.loads(answer.json()['error_message'])['faultstring']


def test_a_repeated_key_is_answered_with_what_it_made(cloud, key):
    first, second = create(cloud, key), create(cloud, key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert len(cloud.arqs()) == 2


def test_without_a_key_each_request_makes_something(cloud):
    assert create(cloud, {}).json() != create(cloud, {}).json()
    assert len(cloud.arqs()) == 4


def test_clients_that_send_a_key_at_the_same_time_get_the_same(cloud, key):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: create(cloud, key), range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    assert len(cloud.arqs()) == 2


def test_a_key_with_another_request_is_refused(cloud, key):
    create(cloud, key)
    other = create(cloud, key, 'one')
    assert other.status_code == 422 and 'Idempotency-Key' in sentence(other)
    assert cloud.call('POST', PROFILES, json=PROFILE, headers=key).status_code == 422
    assert len(cloud.arqs()) == 2


def test_a_request_that_failed_may_be_repeated(cloud, key):
    assert create(cloud, key, 'new').status_code == 404
    cloud.profile('new', FPGA)
    assert create(cloud, key, 'new').status_code == 201


def test_what_was_deleted_is_not_made_again(cloud, key):
    [first, _] = create(cloud, key).json()['arqs']
    cloud.call('DELETE', f'{ARQS}?arqs={first["uuid"]}')
    again = create(cloud, key)
    assert again.status_code == 409 and 'deleted' in sentence(again)
    assert len(cloud.arqs()) == 1


def test_a_profile_is_created_once(cloud, key):
    first = cloud.call('POST', PROFILES, json=PROFILE, headers=key)
    second = cloud.call('POST', PROFILES, json=PROFILE, headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    # whereas with another key the name is taken
    other = {'Idempotency-Key': 'another'}
    assert cloud.call('POST', PROFILES, json=PROFILE, headers=other).status_code == 409


def test_an_attribute_is_created_once(cloud, key):
    cloud.host()
    cloud.rest()
    [part] = cloud.get('/deployables')['deployables']
    body = {'deployable_id': part['uuid'], 'key': 'colour', 'value': 'red'}
    first = cloud.call('POST', '/attributes', json=body, headers=key)
    second = cloud.call('POST', '/attributes', json=body, headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()['uuid'] == second.json()['uuid']


@pytest.mark.parametrize('key', ['', 'x' * 256, 'tab\tinside'])
def test_a_key_that_is_none_is_refused(cloud, key):
    answer = create(cloud, {'Idempotency-Key': key})
    assert answer.status_code == 400 and 'Idempotency-Key' in sentence(answer)


def test_a_key_expires(cloud, key):
    first = create(cloud, key)
    lifetime = cloud.standalone.conf.conductor.idempotency_key_lifetime
    past = clock.now() - datetime.timedelta(seconds=lifetime + 1)
    with cloud.standalone.db.writer() as session:
        session.execute(sa.update(models.Receipt).values(created_at=past))
    cloud.standalone.conductors[0].sweep.sweep()
    assert create(cloud, key).json() != first.json()


def test_a_lost_answer_makes_nothing_twice(cloud, monkeypatch):
    # given a conductor whose first answer is lost
    driver = cloud.standalone.transport._driver
    send, lost = driver.send, []

    def lose(target, ctxt, message, **options):
        answer = send(target, ctxt, message, **options)
        if message['method'].startswith('create_') and len(lost) % 2 == 0:
            lost.append(message['method'])
            raise messaging.MessagingTimeout('lost on the way back')
        lost.append(None)
        return answer

    monkeypatch.setattr(driver, 'send', lose)
    # when clients create something, without a key
    made = create(cloud, {})
    lost.clear()
    profile = cloud.call('POST', PROFILES, json=PROFILE)
    # then the API repeats its call, and there is one of each
    assert (made.status_code, profile.status_code) == (201, 201)
    assert [arq['uuid'] for arq in made.json()['arqs']] == [arq['uuid'] for arq in cloud.arqs()]
