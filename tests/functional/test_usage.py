# SPDX-License-Identifier: Apache-2.0
"""Accelerator-hours, from the lives of requests of several projects."""

import datetime
import uuid

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import eventually
from tests.fixtures.persons import Person, trusting_cloud

GROUP = {'resources:FPGA': '1'}


@pytest.fixture(scope='module')
def served(tmp_path_factory):
    made = trusting_cloud(
        tmp_path_factory.mktemp('cloud'),
        more='[conductor]\nsweep_interval = 86400\nhistory_days = 30\n',
    )
    made.start()
    made.session.headers['X-Auth-Token'] = 'admin:admins'
    made.host('compute1')
    yield made
    made.stop()


@pytest.fixture
def cloud(served):
    """Without history."""
    yield served
    for person in (Person(served, project=name, vouched=True) for name in ('mine', 'other')):
        for arq in person.get('/accelerator_requests')['arqs']:
            person.call('DELETE', f'/accelerator_requests/{arq["uuid"]}')
    with served.standalone.db.writer() as session:
        session.execute(sa.delete(models.ArqTransition))


@pytest.fixture
def profile(cloud):
    return cloud.profile(f'p-{uuid.uuid4()}', GROUP)['name']


@pytest.fixture
def mine(cloud):
    return Person(cloud, vouched=True)


@pytest.fixture
def other(cloud):
    return Person(cloud, project='other', vouched=True)


def bound(person, name):
    """A new request, bound."""
    made = person.call('POST', '/accelerator_requests', json={'device_profile_name': name})
    [arq] = made.json()['arqs']
    bind(person, arq)
    return arq


def bind(person, arq):
    values = {
        'hostname': 'compute1',
        'device_rp_uuid': person.cloud.rp(),
        'instance_uuid': str(uuid.uuid4()),
    }
    patch = [{'op': 'add', 'path': f'/{name}', 'value': each} for name, each in values.items()]
    response = person.call('PATCH', '/accelerator_requests', json={arq['uuid']: patch})
    assert response.status_code == 202, response.text


def unbind(person, arq):
    patch = [{'op': 'remove', 'path': '/hostname'}]
    response = person.call('PATCH', '/accelerator_requests', json={arq['uuid']: patch})
    assert response.status_code == 202, response.text


def age(cloud, arq, **delta):
    """As if the steps of a request had been so much earlier."""
    with cloud.standalone.db.writer() as session:
        rows = session.scalars(
            sa.select(models.ArqTransition).where(models.ArqTransition.arq_uuid == arq['uuid'])
        )
        for row in rows:
            row.created_at -= datetime.timedelta(**delta)


def usage(person, query=''):
    return [
        (
            each['project_id'],
            each['device_profile_name'],
            each['resource_class'],
            each['requests'],
            round(each['hours'], 1),
        )
        for each in person.get(f'/usage{query}')['usage']
    ]


def test_readers_see_their_project_and_administrators_all(cloud, mine, other, profile):
    age(cloud, bound(mine, profile), hours=3)
    for _ in range(2):
        age(cloud, bound(other, profile), hours=1)
    of_mine, of_other = ('mine', profile, 'FPGA', 1, 3.0), ('other', profile, 'FPGA', 2, 2.0)
    assert usage(Person(cloud, 'reader')) == [of_mine]
    assert usage(other) == [of_other]
    assert usage(cloud) == [of_mine, of_other]
    assert usage(cloud, '?project_id=other') == [of_other]
    refused = mine.call('GET', '/usage?project_id=other')
    assert refused.status_code == 403
    assert 'cyborg:usage:get_all_projects' in refused.text


def test_a_request_counts_for_each_time_in_which_it_is_bound(cloud, mine, profile):
    arq = bound(mine, profile)
    age(cloud, arq, hours=2)
    unbind(mine, arq)
    age(cloud, arq, hours=5)
    # what is unbound uses nothing
    assert usage(mine) == [('mine', profile, 'FPGA', 1, 2.0)]
    bind(mine, arq)
    age(cloud, arq, hours=1)
    assert usage(mine) == [('mine', profile, 'FPGA', 1, 3.0)]


def test_usage_stays_when_request_and_profile_are_gone(cloud, mine, profile):
    arq = bound(mine, profile)
    age(cloud, arq, hours=4)
    assert mine.call('DELETE', f'/accelerator_requests/{arq["uuid"]}').status_code == 204
    assert cloud.call('DELETE', f'/device_profiles/{profile}').status_code == 204
    assert usage(mine) == [('mine', profile, 'FPGA', 1, 4.0)]


def test_a_profile_keeps_the_name_under_which_it_was_used(cloud, mine, profile):
    age(cloud, bound(mine, profile), hours=1)
    renamed = cloud.call('PATCH', f'/device_profiles/{profile}', json={'name': f'{profile}-new'})
    assert renamed.status_code == 200
    assert usage(mine) == [('mine', profile, 'FPGA', 1, 1.0)]


def test_time_before_the_history_is_not_counted_and_the_answer_says_so(cloud, mine, profile):
    arq = bound(mine, profile)
    age(cloud, arq, days=100)
    [conductor] = cloud.standalone.conductors

    def sweep():
        with cloud.standalone.db.writer() as session:
            session.execute(
                sa.update(models.Round).values(until=clock.now() - datetime.timedelta(days=1))
            )
        conductor.sweep.round()

    sweep()
    assert mine.call('GET', f'/accelerator_requests/{arq["uuid"]}/history').status_code == 404
    shown = mine.get('/usage?start=2000-01-01')
    assert shown['start'] == shown['complete_since']
    since, end = (datetime.datetime.fromisoformat(shown[name]) for name in ('start', 'end'))
    assert datetime.timedelta(days=30) - (end - since) < datetime.timedelta(minutes=1)
    assert [round(each['hours']) for each in shown['usage']] == [30 * 24]
    # what is deleted does not come back when more is kept
    cloud.standalone.conf.set_override('history_days', 300, 'conductor')
    sweep()
    later = mine.get('/usage?start=2000-01-01')
    assert shown['start'] <= later['complete_since'] < shown['end']
    cloud.standalone.conf.clear_override('history_days', 'conductor')


def test_usage_costs_two_statements_however_much_there_is(cloud, mine, profile):
    for _ in range(3):
        bound(mine, profile)
    eventually(lambda: usage(mine, '?start=2026-01-01'))
    with cloud.statements() as statements:
        assert mine.get('/usage')['usage']
    assert len([each for each in statements if 'heartbeat' not in each]) <= 2
