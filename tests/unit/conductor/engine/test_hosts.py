# SPDX-License-Identifier: Apache-2.0
"""Reports of hosts: which are taken, and what the host has to do after one."""

import datetime

import pytest

from cyborg import errors
from cyborg.conductor.engine import hosts
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.reporting_host import CAUSE, NAME, Host, deployable, device, handle


def prepared():
    """A card whose only handle is a mediated device, which its host must prepare."""
    return device('card', deployable('part', handle('a', type='MDEV', is_host_prepared=True)))


def forget(db):
    with transact(db, CAUSE) as unit:
        return hosts.forget(unit, NAME), unit


def test_a_late_report_is_refused(host, db):
    host.report(prepared())
    host.report(prepared())
    with pytest.raises(errors.StaleReport, match='does not follow the last one, 2'):
        Host(db).report()


def test_the_plan_repeats_the_tasks_that_are_open(host):
    host.report(prepared())
    host.bind(host.request())
    assert [task.kind for task in host.report(prepared()).tasks] == ['prepare']


def test_a_host_that_starts_prepares_again_what_requests_hold(host):
    host.report(device('card', deployable('part', 'a', handle('b', is_host_prepared=True))))
    host.bind(host.request(), host.request())
    [task] = host.report(
        device('card', deployable('part', 'a', handle('b', is_host_prepared=True))), is_first=True
    ).tasks
    assert task.kind == 'prepare'


def test_a_mediated_device_of_no_request_is_removed(host):
    host.report(prepared())
    [left] = host.all(models.AttachHandle.uuid)
    tasks = host.report(prepared(), mdevs=[left]).tasks
    assert [task.kind for task in tasks] == ['release']


def test_a_mediated_device_of_another_program_is_left_alone(host):
    host.report(prepared())
    stranger = '99999999-9999-4999-8999-999999999999'
    assert host.report(prepared(), mdevs=[stranger]).tasks == []


def test_a_mediated_device_that_the_host_has_prepared_is_left_alone(host):
    host.report(prepared())
    [handle_uuid] = host.all(models.AttachHandle.uuid)
    plan = host.report(prepared(), mdevs=[handle_uuid], prepared={handle_uuid: 1})
    assert plan.tasks == []


def test_a_host_whose_agent_is_alive_cannot_be_forgotten(host, db):
    host.report()
    long_ago = clock.now() - datetime.timedelta(minutes=1)
    with db.reader() as session, pytest.raises(errors.Conflict, match='stop it first'):
        hosts.require_gone(session, NAME, long_ago)


def test_a_silent_host_can_be_forgotten(host, db):
    host.report()
    with db.reader() as session:
        hosts.require_gone(session, NAME, clock.now() + datetime.timedelta(minutes=1))


def test_an_unknown_host_cannot_be_forgotten(db):
    with db.reader() as session, pytest.raises(errors.NotFound, match='There is no host'):
        hosts.require_gone(session, NAME, clock.now())


def test_forgetting_a_host_unbinds_its_requests_and_deletes_its_rows(host, db):
    host.report(device('card', deployable('part', 'a', 'b')))
    host.bind(host.request())
    count, _ = forget(db)
    assert count == {'requests unbound': 1, 'devices forgotten': 1}
    assert host.states() == ['Unbound']
    for column in (models.Device.id, models.Deployable.id, models.AttachHandle.id, models.Agent.id):
        assert host.all(column) == []


def test_a_forgotten_host_gets_no_tasks(host, db):
    host.report(prepared())
    host.bind(host.request())
    _, unit = forget(db)
    assert (unit.tasks, unit.hosts_to_wake) == ({}, set())
