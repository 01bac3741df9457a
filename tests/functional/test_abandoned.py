# SPDX-License-Identifier: Apache-2.0
"""Requests that nobody ever binds do not stay for ever."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import Cloud, eventually

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
DAY = 86400


@pytest.fixture
def cloud(request, tmp_path):
    made = Cloud(tmp_path, more='[conductor]\nsweep_interval = 1\n' + getattr(request, 'param', ''))
    made.start()
    made.host()
    made.profile('one', FPGA)
    yield made
    made.stop()


def age(cloud, seconds, *arqs):
    """Requests that were made so long ago."""
    then = clock.now() - datetime.timedelta(seconds=seconds)
    with cloud.standalone.db.writer() as session:
        session.execute(
            sa.update(models.ExtArq)
            .values(created_at=then)
            .where(models.ExtArq.uuid.in_([arq['uuid'] for arq in arqs]))
        )


def sweep(cloud):
    cloud.standalone.conductors[0].sweep.sweep()


def uuids(arqs):
    return {arq['uuid'] for arq in arqs}


def test_a_request_that_nobody_binds_goes_after_a_day_and_its_profile_can_go(cloud):
    old, young = cloud.request('one')[0], cloud.request('one')[0]
    age(cloud, DAY + 1, old)
    age(cloud, DAY - 600, young)
    eventually(lambda: uuids(cloud.arqs()) == {young['uuid']})
    last = cloud.get(f'/accelerator_requests/{old["uuid"]}/history')['history'][-1]
    assert (last['event'], last['from_state'], last['actor']) == ('delete', 'Initial', 'conductor')
    assert 'did not bind it within 86400 seconds' in last['reason']
    age(cloud, DAY + 1, young)
    eventually(lambda: cloud.arqs() == [])
    assert cloud.call('DELETE', '/device_profiles/one').status_code == 204


def test_a_request_that_was_bound_once_stays(cloud):
    bound, unbound = cloud.request('one')[0], cloud.request('one')[0]
    for arq in (bound, unbound):
        assert cloud.bind(arq).status_code == 202
    assert cloud.unbind(unbound).status_code == 202
    age(cloud, 9 * DAY, bound, unbound)
    sweep(cloud)
    assert uuids(cloud.arqs()) == uuids([bound, unbound])


@pytest.mark.parametrize('cloud', ['initial_request_timeout = 0\n'], indirect=True)
def test_an_operator_can_have_such_requests_kept(cloud):
    [arq] = cloud.request('one')
    age(cloud, 9 * DAY, arq)
    sweep(cloud)
    assert uuids(cloud.arqs()) == {arq['uuid']}


def test_many_such_requests_go_some_at_a_time(cloud, monkeypatch):
    monkeypatch.setattr(arqs_db, 'ABANDONED_AT_ONCE', 2)
    arqs = [cloud.request('one')[0] for _ in range(5)]
    age(cloud, DAY + 1, *arqs)
    eventually(lambda: cloud.arqs() == [])


def test_those_requests_are_found_by_an_index(cloud):
    with cloud.standalone.db.reader() as session:
        indexes = sa.inspect(session.connection()).get_indexes('ext_arqs')
    assert ['state', 'created_at'] in [index['column_names'] for index in indexes]
