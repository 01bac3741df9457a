# SPDX-License-Identifier: Apache-2.0
"""The log at INFO has one line for each change of state and one for each request."""

import json
import logging
import re
import uuid

import pytest

from cyborg import metrics
from tests.fixtures.cleaning import CARDS, SETTINGS, CleanedHost
from tests.fixtures.cloud import Cloud, eventually

FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
REQUEST = {'X-OpenStack-Request-ID': f'req-{uuid.uuid4()}'}


@pytest.fixture
def lines(caplog):
    """The lines of a logger, at INFO and above."""
    caplog.set_level(logging.INFO, 'cyborg')

    def found(name):
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == name and record.levelno >= logging.INFO
        ]

    return found


@pytest.fixture
def cloud(tmp_path, lines, request):
    """Starts before the test, because setting up logging removes the handlers of pytest."""
    cloud = Cloud(tmp_path, more=getattr(request, 'param', ''))
    cloud.start()
    yield cloud
    cloud.stop()


def about(lines, what):
    return [line for line in lines('cyborg.changes') if what in line]


def bind(cloud, arq, server, rp=None):
    body = {
        arq['uuid']: [
            {'op': 'add', 'path': '/hostname', 'value': 'compute1'},
            {'op': 'add', 'path': '/device_rp_uuid', 'value': rp or cloud.rp()},
            {'op': 'add', 'path': '/instance_uuid', 'value': server},
        ]
    }
    return cloud.call('PATCH', '/accelerator_requests', json=body, headers=REQUEST)


def test_each_state_of_a_request_is_one_line_with_its_ids(cloud, lines):
    cloud.host()
    cloud.profile('fpga', FPGA)
    [arq] = cloud.request('fpga')
    server = str(uuid.uuid4())
    assert bind(cloud, arq, server).status_code == 202
    cloud.call('DELETE', f'/accelerator_requests?instance={server}')
    created, bound, deleted = about(lines, f'Accelerator request {arq["uuid"]}')
    assert ': create state=Initial project_id=noauth resource_class=FPGA' in created
    assert (
        f': bind state=Bound before=Initial hostname=compute1 instance_uuid={server} '
        f'project_id=noauth resource_class=FPGA actor="user noauth" '
        f'request_id={REQUEST["X-OpenStack-Request-ID"]}'
    ) in bound
    assert ': delete state=Deleting before=Bound hostname=compute1' in deleted


def test_a_refused_bind_tells_its_sentence_in_the_access_log(cloud, lines):
    cloud.host()
    cloud.profile('fpga', FPGA)
    [arq] = cloud.request('fpga')
    answer = bind(cloud, arq, str(uuid.uuid4()), rp=str(uuid.uuid4()))
    assert answer.status_code == 404
    line = lines('cyborg.access')[-1]
    assert re.search(
        r'"PATCH /v2/accelerator_requests" status: 404 len: \d+ microversion: \S+ '
        r'time: \d+\.\d{6} project: noauth request_id: req-\S+ fault: "',
        line,
    )
    assert json.loads(answer.json()['error_message'])['faultstring'] in line


def test_profiles_and_devices_are_told(cloud, lines):
    cloud.host()
    [device] = cloud.get('/devices')['devices']
    [added] = about(lines, f'Device {device["uuid"]}: added')
    assert 'hostname=compute1' in added and 'driver_name=fake_driver' in added
    for action in ('disable', 'disable', 'enable'):
        cloud.call('POST', f'/devices/{device["uuid"]}/{action}', headers=REQUEST)
    disabled, enabled = about(lines, f'Device {device["uuid"]}: ')[1:]
    assert ': disabled ' in disabled and ': enabled ' in enabled
    assert f'request_id={REQUEST["X-OpenStack-Request-ID"]}' in disabled
    profile = cloud.profile('fpga', FPGA)
    cloud.call('DELETE', f'/device_profiles/{profile["uuid"]}')
    created, deleted = about(lines, f'Device profile {profile["uuid"]}')
    assert ': created name=fpga' in created and ': deleted name=fpga' in deleted


@pytest.mark.parametrize(
    'cloud', ['[conductor]\nsweep_interval = 1\nheartbeat_timeout = 4\n'], indirect=True
)
def test_an_agent_that_falls_silent_and_comes_back_is_told_once(cloud, lines):
    cloud.host()
    cloud.rest()
    registered, ready = about(lines, 'Agent ')
    assert 'Agent compute1: registered' in registered and ': ready' in ready
    eventually(lambda: about(lines, ': down hostname=compute1'))
    cloud.agent().inventory.beat()
    eventually(lambda: about(lines, 'Agent compute1: up'))
    assert len(about(lines, ': down')) == 1


@pytest.mark.parametrize('cloud', [f'{SETTINGS}[cleaning]\nlevel = reset\n'], indirect=True)
def test_cleaning_is_told_with_the_handle_and_the_server(cloud, lines):
    cloud.host(make=CleanedHost, cards=CARDS[:1])
    cloud.profile('card', {'resources:CUSTOM_PCI': '1'})
    [arq] = cloud.request('card')
    server = str(uuid.uuid4())
    assert bind(cloud, arq, server).status_code == 202
    cloud.call('DELETE', f'/accelerator_requests?instance={server}', headers=REQUEST)
    eventually(lambda: about(lines, ': done kind=clean'))
    created, done = about(lines, 'Task ')
    for line in (created, done):
        assert f'arq_uuid={arq["uuid"]} instance_uuid={server}' in line
    assert ': created kind=clean hostname=compute1' in created


@pytest.mark.parametrize('cloud', ['access_log = false\n'], indirect=True)
def test_the_access_log_can_be_turned_off(cloud, lines):
    assert cloud.get('/devices')['devices'] == []
    assert lines('cyborg.access') == []


def test_a_refused_bind_is_in_the_log_and_in_the_history_once(cloud, lines):
    # given a request that is bound to what does not exist
    cloud.host()
    cloud.profile('fpga', FPGA)
    [arq] = cloud.request('fpga')
    server, nowhere = str(uuid.uuid4()), str(uuid.uuid4())
    # when the client repeats the call, gives up, and deletes the request
    answers = [bind(cloud, arq, server, rp=nowhere) for _ in range(2)]
    cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    # then the sentence that it got is in the log, with its ids
    sentence = json.loads(answers[0].json()['error_message'])['faultstring']
    [line] = [line for line in about(lines, arq['uuid']) if ': refused ' in line]
    assert json.dumps(sentence) in line
    assert f'instance_uuid={server}' in line
    # and in the history, which outlives the request
    steps = cloud.get(f'/accelerator_requests/{arq["uuid"]}/history')['history']
    assert [step['event'] for step in steps] == ['create', 'refused', 'delete']
    refused = steps[1]
    assert (refused['reason'], refused['hostname'], refused['instance_uuid']) == (
        sentence,
        'compute1',
        server,
    )
    assert refused['from_state'] == refused['to_state'] == 'Initial'


@pytest.mark.parametrize('cloud', ['[fake_driver]\naccelerators = 1\n'], indirect=True)
def test_a_refused_bind_of_a_server_that_has_a_device_is_in_its_history(cloud, lines):
    cloud.host()
    cloud.profile('fpga', FPGA)
    [first], [second] = cloud.request('fpga'), cloud.request('fpga')
    server = str(uuid.uuid4())
    assert bind(cloud, first, server).status_code == 202
    refused = metrics.REFUSED_BINDS.labels('NoFreeHandle')
    before = refused._value.get()
    assert bind(cloud, second, server).status_code == 409
    steps = cloud.get(f'/accelerator_requests/{second["uuid"]}/history')['history']
    assert [step['event'] for step in steps] == ['create', 'refused']
    assert [line for line in about(lines, second['uuid']) if ': refused ' in line]
    assert refused._value.get() == before + 1


def test_a_request_that_the_caller_may_not_see_tells_nothing_in_its_history(cloud, lines):
    cloud.host()
    answer = bind(cloud, {'uuid': str(uuid.uuid4())}, str(uuid.uuid4()))
    assert answer.status_code == 404
    assert not [line for line in lines('cyborg.changes') if ': refused ' in line]
