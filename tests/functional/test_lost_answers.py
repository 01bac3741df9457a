# SPDX-License-Identifier: Apache-2.0
"""Connections to the database that break during a COMMIT: everything happens once."""

import contextlib
import threading
import uuid

import pytest
from oslo_db import exception

from cyborg import context, objects
from cyborg.conductor.engine import unit_of_work
from cyborg.conductor.rpcapi import ConductorAPI
from tests.fixtures.cloud import Cloud
from tools.bench.operation_counts import BACKGROUND

FPGA = {'resources:FPGA': '1'}


@pytest.fixture
def cloud(tmp_path):
    """Whose agent says nothing by itself."""
    made = Cloud(tmp_path)
    made.start()
    made.host()
    made.rest()
    made.agent().inventory.stop()
    made.profile('one', FPGA)
    yield made
    made.stop()


@pytest.fixture(params=['after', 'before'])
def broken(cloud, request, monkeypatch):
    """Have the next connection break after its COMMIT was done, or before."""
    monkeypatch.setattr(unit_of_work, 'CHECKS', 1)
    writer, todo = cloud.standalone.db.writer, []

    def is_next():
        return bool(todo) and threading.current_thread().name not in BACKGROUND

    @contextlib.contextmanager
    def write():
        with writer() as session:
            yield session
            if is_next() and request.param == 'before':
                raise exception.DBConnectionError(todo.pop())
        if is_next():
            raise exception.DBConnectionError(todo.pop())

    monkeypatch.setattr(cloud.standalone.db, 'writer', write)
    yield lambda: todo.append('The connection broke.')
    assert not todo


def test_requests_are_made_once(cloud, broken):
    broken()
    assert [arq['uuid'] for arq in cloud.request('one')] == [arq['uuid'] for arq in cloud.arqs()]


def test_a_bind_is_made_once_and_announced(cloud, broken):
    arqs, rp = cloud.request('one'), cloud.rp()
    broken()
    assert cloud.bind(arqs, rp=rp).status_code == 202
    [event] = cloud.nova.wait_for_events(1)
    assert event['tag'] == arqs[0]['uuid']
    assert steps(cloud, arqs[0]) == ['create', 'bind']


def steps(cloud, arq):
    history = cloud.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    return [step['event'] for step in history]


def test_an_unbind_is_made_once(cloud, broken):
    [arq] = cloud.request('one')
    cloud.bind(arq)
    broken()
    assert cloud.unbind(arq).status_code == 202
    assert steps(cloud, arq) == ['create', 'bind', 'unbind']


def test_what_was_deleted_was_there(cloud, broken):
    [arq] = cloud.request('one')
    broken()
    answer = cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    assert answer.status_code == 204 and cloud.arqs() == []


def test_one_that_was_not_there_is_still_told(cloud, broken):
    [arq], unknown = cloud.request('one'), str(uuid.uuid4())
    broken()
    answer = cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]},{unknown}')
    assert answer.status_code == 404 and cloud.arqs() == []
    assert unknown in answer.text and arq['uuid'] not in answer.text


def test_a_profile_is_made_changed_and_deleted_once(cloud, broken):
    broken()
    cloud.profile('two', FPGA)
    broken()
    answer = cloud.call('PATCH', '/device_profiles/two', json={'name': 'three'})
    assert answer.status_code == 200, answer.text
    broken()
    assert cloud.call('DELETE', '/device_profiles/three').status_code == 204
    assert [each['name'] for each in cloud.get('/device_profiles')['device_profiles']] == ['one']


def test_an_attribute_is_made_and_deleted_once(cloud, broken):
    [part] = cloud.get('/deployables')['deployables']
    before = len(cloud.get('/attributes')['attributes'])
    broken()
    answer = cloud.call(
        'POST', '/attributes', json={'deployable_id': part['uuid'], 'key': 'colour', 'value': 'red'}
    )
    assert answer.status_code == 201, answer.text
    assert len(cloud.get('/attributes')['attributes']) == before + 1
    broken()
    assert cloud.call('DELETE', f'/attributes/{answer.json()["uuid"]}').status_code == 204
    assert len(cloud.get('/attributes')['attributes']) == before


def test_os_acc_hears_how_many_it_released(cloud, broken):
    conductor, server = ConductorAPI(cloud.standalone.transport), str(uuid.uuid4())
    broken()
    plugged = conductor.plug_instance(
        context.internal(),
        'compute1',
        {'uuid': server, 'project_id': 'p'},
        {'uuid': cloud.rp()},
        {'accel:device_profile': 'one'},
    )
    assert [arq.state for arq in plugged] == ['Bound']
    broken()
    assert conductor.unplug_instance(context.internal(), 'compute1', server) == 1


def test_a_report_is_not_older_than_itself(cloud, broken):
    broken()
    plan = ConductorAPI(cloud.standalone.transport).report(
        context.internal(),
        objects.Report(
            hostname='another',
            sequence=1,
            digest='',
            is_ready=True,
            is_first=True,
            conflicts={},
            drivers=[],
            devices=[],
            mdevs=None,
            prepared={},
        ),
    )
    assert plan.providers == []
