# SPDX-License-Identifier: Apache-2.0
"""Which device events a report leads to."""

import pytest

from cyborg.conductor.engine.device_events import Conditions, Kind
from cyborg.db.sqlalchemy import models

SERVERS = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222']


def device(fault=None, is_missing=False):
    return models.Device(
        hostname='compute1',
        key='card-1',
        type='GPU',
        vendor='10de',
        driver_name='nvidia_gpu_driver',
        std_board_info={},
        vendor_board_info={},
        status='enabled',
        fault=fault,
        is_missing=is_missing,
    )


@pytest.fixture
def session(db):
    with db.writer() as session:
        yield session


def kinds(session, before, rows):
    return [change.event.removeprefix('device.') for change in before.compare(session, rows)]


@pytest.mark.parametrize('trouble', [{'fault': 'It burns.'}, {'fault': ''}, {'is_missing': True}])
@pytest.mark.parametrize('is_back', [False, True])
def test_a_device_that_gets_into_trouble_fails_and_one_that_gets_out_recovers(
    session, trouble, is_back
):
    row = device(**trouble) if is_back else device()
    before = Conditions([row])
    for name, value in trouble.items():
        setattr(row, name, {'fault': None, 'is_missing': False}[name] if is_back else value)
    assert kinds(session, before, [row]) == [Kind.RECOVERED if is_back else Kind.FAILED]


@pytest.mark.parametrize('facts', [{}, {'fault': 'It burns.'}, {'is_missing': True}])
def test_a_device_that_stays_as_it_is_leads_to_no_event(session, facts):
    row = device(**facts)
    assert kinds(session, Conditions([row]), [row]) == []


def test_a_fault_with_another_reason_is_a_new_failure(session):
    row = device(fault='It burns.')
    before = Conditions([row])
    row.fault = 'It smokes.'
    [event] = before.compare(session, [row])
    assert (event.event, event.facts['fault']) == ('device.failed', 'It smokes.')


def test_a_faulty_device_that_goes_missing_fails_again(session):
    row = device(fault='It burns.')
    before = Conditions([row])
    row.is_missing = True
    assert kinds(session, before, [row]) == [Kind.FAILED]


def test_a_new_device_is_an_event_and_its_trouble_another(session):
    well, faulty = device(), device(fault='It burns.')
    assert kinds(session, Conditions([]), [well]) == [Kind.ADDED]
    assert kinds(session, Conditions([]), [faulty]) == [Kind.ADDED, Kind.FAILED]


def test_a_removed_device_is_an_event(session):
    well, missing = device(), device(is_missing=True)
    first, second = Conditions([well, missing]).compare(session, [])
    assert first.event == second.event == 'device.removed'
    assert (first.facts['is_missing'], second.facts['is_missing']) == (False, True)


def test_an_event_names_the_device_and_the_servers_that_have_parts_of_it(session):
    row = device()
    holders = [
        models.ExtArq(device_profile_group_id=0, group={}, instance_uuid=server)
        for server in (*reversed(SERVERS), SERVERS[0], None)
    ]
    handles = [
        models.AttachHandle(key=str(number), type='PCI', info={}, arq=holder)
        for number, holder in enumerate([*holders, None])
    ]
    part = models.Deployable(
        name='p', rp_uuid='r', driver_name='d', num_accelerators=5, attach_handles=handles
    )
    row.deployables.append(part)
    session.add(row)
    session.flush()
    before = Conditions([row])
    row.fault = 'It burns.'
    [event] = before.compare(session, [row])
    assert event.payload == {
        'uuid': row.uuid,
        'hostname': 'compute1',
        'key': 'card-1',
        'type': 'GPU',
        'vendor': '10de',
        'model': None,
        'driver_name': 'nvidia_gpu_driver',
        'status': 'enabled',
        'is_missing': False,
        'fault': 'It burns.',
        'instance_uuids': SERVERS,
    }
