# SPDX-License-Identifier: Apache-2.0
"""DELETEs whose call to a conductor gets no answer: the API repeats the call."""

import contextlib
import uuid

import oslo_messaging as messaging
import pytest

from cyborg import errors
from tests.fixtures.cloud import Cloud

FPGA = {'resources:FPGA': '1'}
ARQS, PROFILES = '/accelerator_requests', '/device_profiles'


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path)
    made.start()
    made.profile('one', FPGA)
    made.profile('two', FPGA)
    yield made
    made.stop()


@pytest.fixture(params=['answer', 'call'])
def lossy(cloud, request, monkeypatch):
    """Lose the answer to the first deletion, or its call. Returns the calls that were made."""
    driver = cloud.standalone.transport._driver
    send, calls = driver.send, []

    def lose(target, ctxt, message, **options):
        if not message['method'].startswith('delete_'):
            return send(target, ctxt, message, **options)
        calls.append(message['method'])
        if len(calls) > 1:
            return send(target, ctxt, message, **options)
        if request.param == 'answer':
            with contextlib.suppress(errors.CyborgError):
                send(target, ctxt, message, **options)
        raise messaging.MessagingTimeout(f'The {request.param} was lost.')

    monkeypatch.setattr(driver, 'send', lose)
    return calls


def names(cloud):
    return sorted(each['name'] for each in cloud.get(PROFILES)['device_profiles'])


def delete(cloud, *refs):
    return cloud.call('DELETE', f'{PROFILES}?value={",".join(refs)}')


def test_profiles_are_deleted(cloud, lossy):
    assert delete(cloud, 'one', 'two').status_code == 204
    assert len(lossy) == 2 and names(cloud) == []


def test_one_unknown_profile_is_named_and_the_others_stay(cloud, lossy):
    answer = delete(cloud, 'one', 'mistyped')
    assert answer.status_code == 404 and 'mistyped' in answer.text
    assert len(lossy) == 2 and names(cloud) == ['one', 'two']


@pytest.fixture
def previous_release(cloud, monkeypatch):
    """A conductor that ignores the key of a deletion."""
    driver = cloud.standalone.transport._driver
    send = driver.send

    def forget(target, ctxt, message, **options):
        return send(target, ctxt | {'idempotency_key': None}, message, **options)

    monkeypatch.setattr(driver, 'send', forget)


@pytest.mark.usefixtures('previous_release')
@pytest.mark.parametrize('path', [f'{PROFILES}/one', f'{PROFILES}?value=one'])
def test_a_conductor_of_the_previous_release_deletes_a_profile(cloud, lossy, path):
    assert cloud.call('DELETE', path).status_code == 204
    assert len(lossy) == 2 and names(cloud) == ['two']


@pytest.mark.parametrize('lossy', ['answer'], indirect=True)
@pytest.mark.usefixtures('previous_release')
def test_a_conductor_of_the_previous_release_does_not_find_several_profiles(cloud, lossy):
    # the second call cannot know whether the first one has deleted them, or none of them
    assert delete(cloud, 'one', 'two').status_code == 404
    assert len(lossy) == 2 and names(cloud) == []


def test_a_profile_that_never_existed_is_not_found(cloud):
    answer = cloud.call('DELETE', f'{PROFILES}/mistyped')
    assert answer.status_code == 404 and 'mistyped' in answer.text


def test_a_profile_that_a_repeated_call_does_not_find_counts_as_deleted(cloud, lossy):
    assert cloud.call('DELETE', f'{PROFILES}/mistyped').status_code == 204
    assert len(lossy) == 2


def test_a_profile_in_use_stays(cloud, lossy):
    cloud.request('one')
    assert delete(cloud, 'one', 'two').status_code == 409
    assert len(lossy) == 2 and names(cloud) == ['one', 'two']


def test_requests_are_deleted_also_beside_an_unknown_one(cloud, lossy):
    [arq] = cloud.request('one')
    answer = cloud.call('DELETE', f'{ARQS}?arqs={arq["uuid"]},{uuid.uuid4()}')
    # the second call cannot know whether the first one has deleted what it does not find
    assert answer.status_code == 204
    assert len(lossy) == 2 and cloud.arqs() == []
