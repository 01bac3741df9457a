# SPDX-License-Identifier: Apache-2.0
"""A host does again what its requests need: after a restart, or when a card has lost its image."""

import sqlalchemy as sa

from cyborg.db.sqlalchemy import models
from cyborg.objects import TaskKind, TaskState
from tests.fixtures.reporting_host import deployable, device, handle

IMAGE = '11111111-1111-4111-8111-111111111111'
GROUP = {'resources:FPGA': '1', 'accel:bitstream_id': IMAGE}


def gpu(**facts):
    return device('gpu', deployable('part', handle('a', is_host_prepared=True, **facts)))


def region(**facts):
    return device('fpga', deployable('part', 'a', is_programmable=True, **facts))


def open_kinds(plan):
    return [task.kind for task in plan.tasks]


def end_tasks(host, **values):
    """Have the host do what it was told to: the request is Bound."""
    with host.db.writer() as session:
        session.execute(sa.update(models.Task).values(state=TaskState.DONE))
        session.execute(sa.update(models.ExtArq).values(state='Bound', bind_deadline=None))
        session.execute(sa.update(models.AttachHandle).values(withheld=None))
        session.execute(sa.update(models.Deployable).values(**values or {'reserved': 0}))


def test_a_task_that_is_open_is_not_made_twice(host):
    host.report(gpu())
    host.bind(host.request())
    assert open_kinds(host.report(gpu(), is_first=True)) == [TaskKind.PREPARE]
    assert host.states() == ['BindStarted']


def test_a_handle_that_was_missing_is_prepared_when_it_is_back(host):
    host.report(gpu())
    host.bind(host.request())
    end_tasks(host)
    # when the card goes, there is nothing to prepare
    assert open_kinds(host.report()) == []
    # when it is back
    assert open_kinds(host.report(gpu())) == [TaskKind.PREPARE]
    assert host.states() == ['Provisioning']


def test_an_image_that_a_power_cycle_has_erased_is_loaded_again(host):
    host.report(region())
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    # when the host starts, and the card shows something else
    plan = host.report(region(content={'function': 'y'}), is_first=True)
    assert open_kinds(plan) == [TaskKind.PROGRAM]
    assert host.states() == ['Provisioning']


def test_an_image_that_is_still_there_is_not_loaded_again(host):
    host.report(region())
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    plan = host.report(region(content={'function': 'x'}), is_first=True)
    assert open_kinds(plan) == []
    assert host.states() == ['Bound']


def test_an_image_that_another_program_has_replaced_under_a_server_is_left_alone(host):
    host.report(region())
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    # when the card was not without power
    plan = host.report(region(content={'function': 'y'}))
    assert open_kinds(plan) == []
    assert host.states() == ['Bound']


def test_the_image_of_an_operator_is_loaded_again_for_requests_that_name_none(host):
    host.report(region())
    host.bind(host.request())
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    plan = host.report(region(content={'function': 'y'}), is_first=True)
    [task] = plan.tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})
