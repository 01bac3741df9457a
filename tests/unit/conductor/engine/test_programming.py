# SPDX-License-Identifier: Apache-2.0
"""Images that hosts load into regions, and the requests that wait for them."""

import pytest
import sqlalchemy as sa

from cyborg import errors, objects
from cyborg.conductor.engine import arqs, tasks
from cyborg.conductor.engine.results import Results
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.arqs import Scope
from cyborg.objects import TaskKind, TaskState, Withheld
from tests.fixtures.reporting_host import (
    CAUSE,
    MOST_ATTEMPTS,
    NAME,
    SERVER,
    SILENT_SINCE,
    deployable,
    device,
    handle,
)

IMAGE = '11111111-1111-4111-8111-111111111111'
GROUP = {'resources:FPGA': '1', 'accel:bitstream_id': IMAGE}
REGIONS = ('region0', 'region1')
FUNCTIONS = ('function0', 'function1')
#: what a region shows with the image, and after it has lost it
LOADED, LOST = {'function': 'x'}, {'function': 'y'}


def card(content):
    """Two regions, and one function in each."""
    return device(
        'fpga',
        deployable('card'),
        *(
            deployable(name, parent_name='card', is_programmable=True, content=content)
            for name in REGIONS
        ),
        *(
            deployable(name, name, parent_name=region)
            for name, region in zip(FUNCTIONS, REGIONS, strict=True)
        ),
    )


def region(**facts):
    """A region that is offered as a whole."""
    part = deployable('part', 'a', parent_name='card', is_programmable=True, **facts)
    return device('fpga', deployable('card'), part)


def gpu():
    return device('gpu', deployable('part', handle('a', is_host_prepared=True)))


def set_image(host):
    """Have both regions hold the image."""
    with host.db.writer() as session:
        session.execute(
            sa.update(models.Deployable)
            .where(models.Deployable.name.in_(REGIONS))
            .values(bitstream_id=IMAGE, bitstream_content=LOADED)
        )


def load(host, task):
    """Report that an image was loaded."""
    return host.finish(task, image_uuid=IMAGE, content=LOADED)


def delete_all(host):
    with transact(host.db, CAUSE) as unit:
        arqs.delete_of_instance(unit, SERVER)


def tasks_of(plan, kind):
    return [task for task in plan.tasks if task.kind == kind]


def test_a_function_is_bound_when_its_own_region_is_programmed(host):
    # given a server with a function in each of two regions, whose host has lost power
    host.report(card(LOADED))
    host.bind(host.request(), host.request(), provider=FUNCTIONS)
    set_image(host)
    first, second = host.report(card(LOST), is_first=True).tasks
    assert (first.kind, second.kind) == (TaskKind.PROGRAM, TaskKind.PROGRAM)
    assert host.states() == ['Provisioning', 'Provisioning']
    # when one region has its image again
    load(host, first)
    assert host.states() == ['Bound', 'Provisioning']
    assert host.all(models.Task.state) == [TaskState.DONE, TaskState.OPEN]
    # when the other has it too
    load(host, second)
    assert host.states() == ['Bound', 'Bound']


def test_a_prepared_handle_does_not_complete_the_function_beside_it(host):
    # given a server with a vGPU and a function of an FPGA, whose host has lost power
    host.report(card(LOADED), gpu())
    host.bind(host.request(), host.request(), provider=('part', FUNCTIONS[0]))
    [prepare] = host.report(card(LOADED), gpu()).tasks
    host.finish(prepare)
    assert host.states() == ['Bound', 'Bound']
    set_image(host)
    plan = host.report(card(LOST), gpu(), is_first=True)
    assert host.states() == ['Provisioning', 'Provisioning']
    # when the vGPU is prepared again
    [prepare] = tasks_of(plan, TaskKind.PREPARE)
    host.finish(prepare)
    assert host.states() == ['Bound', 'Provisioning']
    # when the region has its image again
    [program] = tasks_of(plan, TaskKind.PROGRAM)
    load(host, program)
    assert host.states() == ['Bound', 'Bound']


def prepared_region(**facts):
    """A region whose handle its host prepares."""
    whole = handle('a', is_host_prepared=True)
    part = deployable('part', whole, parent_name='card', is_programmable=True, **facts)
    return device('fpga', deployable('card'), part)


def test_a_handle_is_prepared_after_its_image_though_its_agent_was_restarted(host):
    # given a handle whose image is to be loaded
    host.report(prepared_region())
    host.bind(host.request(GROUP))
    [program] = host.report(prepared_region()).tasks
    # when its agent starts again before and after a failed attempt
    for _ in range(2):
        [again] = host.report(prepared_region(), is_first=True).tasks
        assert again.uuid == program.uuid
        host.finish(program, error='Glance is away.', is_touched=False)
    # then it is prepared once, with the image
    load(host, program)
    [prepare] = host.report(prepared_region()).tasks
    assert prepare.kind == TaskKind.PREPARE
    host.finish(prepare)
    assert host.states() == ['Bound'] and host.report(prepared_region()).tasks == []


def test_a_handle_is_prepared_again_after_its_lost_image(host):
    # given a bound handle in a region with an image
    host.report(prepared_region(), boot_id='first')
    host.bind(host.request(GROUP))
    [program] = host.report(prepared_region(), boot_id='first').tasks
    load(host, program)
    [prepare] = host.report(prepared_region(), boot_id='first').tasks
    host.finish(prepare)
    host.report(prepared_region(content=LOADED), boot_id='first')
    # when its host was without power
    [program] = host.report(prepared_region(content=LOST), boot_id='second', is_first=True).tasks
    assert program.kind == TaskKind.PROGRAM
    load(host, program)
    # then it is prepared once, after the image
    [prepare] = host.report(prepared_region(content=LOADED), boot_id='second').tasks
    assert prepare.kind == TaskKind.PREPARE
    host.finish(prepare)
    assert host.states() == ['Bound']


def test_a_function_is_not_offered_while_its_region_is_programmed(host):
    # given a function whose region is programmed again after a loss of power
    host.report(card(LOADED))
    host.bind(host.request(), host.request(), provider=FUNCTIONS)
    set_image(host)
    first, second = host.report(card(LOST), is_first=True).tasks
    # when its server goes
    delete_all(host)
    assert set(host.all(models.AttachHandle.withheld)) == {Withheld.PROGRAMMING}
    # then it can be had when the region has its image
    load(host, first)
    load(host, second)
    assert set(host.all(models.AttachHandle.withheld)) == {None}


def test_an_image_is_loaded_for_the_project_for_which_a_request_is_bound(host):
    host.report(region())
    host.bind(host.request(GROUP, project_id='admins'), owner='mine')
    [task] = host.report(region()).tasks
    assert (task.kind, task.project_id) == (TaskKind.PROGRAM, 'mine')


def test_a_private_image_that_is_loaded_counts_for_the_project_of_the_bind_only(host):
    host.report(region())
    owned = {'owner': 'mine', 'visibility': 'private'}
    host.bind(host.request(GROUP, project_id='mine'), owner='mine')
    [task] = host.report(region()).tasks
    host.finish(task, image_uuid=IMAGE, image_facts=owned)
    delete_all(host)
    # when others create requests for its owner
    host.bind(host.request(GROUP, project_id='admins'), owner='mine')
    assert host.states() == ['Bound']
    delete_all(host)
    # when its owner creates requests for others
    host.bind(host.request(GROUP, project_id='mine'), owner='other')
    assert host.states() == ['BindStarted']


def is_wanted(host, task, hostname=NAME):
    with host.db.reader() as session:
        return tasks.is_wanted(session, hostname, task.uuid)


def program_for_operator(host):
    [uuid] = [
        uuid
        for uuid, name in zip(
            host.all(models.Deployable.uuid), host.all(models.Deployable.name), strict=True
        )
        if name.endswith('part')
    ]
    with transact(host.db, CAUSE) as unit:
        tasks.program_for_operator(unit, uuid, IMAGE)


def fail_overdue(host):
    with host.db.writer() as session:
        session.execute(sa.update(models.ExtArq).values(bind_deadline=SILENT_SINCE))
    with transact(host.db, CAUSE) as unit:
        arqs.fail_overdue(unit)


def unbind_all(host):
    with transact(host.db, CAUSE) as unit:
        arqs.unbind(unit, Scope(None, SILENT_SINCE), host.all(models.ExtArq.uuid))


ends = pytest.mark.parametrize(
    'end', [fail_overdue, unbind_all, delete_all], ids=['deadline', 'unbind', 'delete']
)


@ends
def test_a_region_is_cleaned_after_the_last_image_that_may_come(host, end):
    # given a bind that waits for an image, and an attempt to load it that is retried
    host.report(region())
    host.bind(host.request(GROUP | {'accel:cleaning': 'full'}))
    [program] = host.report(region()).tasks
    [program] = host.finish(program, 'Glance answers 503.', is_touched=False)
    # when the request lets its region go, the retry comes first
    end(host)
    [program] = host.report(region()).tasks
    assert program.kind == TaskKind.PROGRAM
    load(host, program)
    assert host.all(models.AttachHandle.withheld) == ['cleaning']
    # then the clean-up, and nothing after it
    [clean] = host.report(region()).tasks
    assert clean.kind == TaskKind.CLEAN
    host.finish(clean, steps=[objects.Step(name='blank', seconds=1.0)])
    assert host.all(models.AttachHandle.withheld) == [None]
    assert host.report(region()).tasks == []


def finish(host, task, error=None, **facts):
    """Apply the result of a task; returns the unit of work."""
    result = objects.TaskResult(
        task_uuid=task.uuid,
        kind=task.kind,
        generation=task.generation,
        handle_uuid=task.handle.uuid if task.handle else None,
        error=error,
        **facts,
    )
    with transact(host.db, CAUSE) as unit:
        Results(unit, NAME, [result], MOST_ATTEMPTS).take()
    return unit


@pytest.mark.parametrize(
    'facts',
    [
        {'image_uuid': IMAGE, 'image_facts': {'visibility': 'public'}},
        {'error': 'Nobody waits for it.', 'is_touched': False, 'can_retry': False},
    ],
    ids=['loaded', 'not loaded'],
)
def test_no_part_of_a_region_is_offered_before_all_of_it_is_clean(host, facts):
    # given a region with two handles; its image is loaded for a request that has ended
    handles = [handle(key, cleaning='full') for key in 'ab']
    both = device(
        'fpga',
        deployable('card'),
        deployable('part', *handles, parent_name='card', is_programmable=True),
    )
    host.report(both)
    host.bind(host.request(GROUP))
    [program] = host.report(both).tasks
    delete_all(host)
    # when the host has ended the load, the region is still to be blanked
    finish(host, program, **facts)
    assert host.all(models.AttachHandle.withheld) == ['cleaning', 'cleaning']
    [clean] = host.report(both).tasks
    assert (clean.kind, clean.is_alone) == (TaskKind.CLEAN, True)
    with pytest.raises(errors.HandleNotClean):
        host.bind(host.request())
    # then all of it is offered
    host.finish(clean, steps=[objects.Step(name='blank', seconds=1.0)])
    assert host.all(models.AttachHandle.withheld) == [None, None]


def blanked():
    """The region of ``shared`` after it was blanked: it has a handle of its own."""
    return device(
        'fpga',
        deployable('card'),
        deployable(
            'region', handle('pf', cleaning='full'), parent_name='card', is_programmable=True
        ),
    )


def shared():
    handles = [handle(key, cleaning='full') for key in ('vf1', 'vf2')]
    return device(
        'fpga',
        deployable('card'),
        deployable('region', parent_name='card', is_programmable=True, resource_class=None),
        deployable('function', *handles, parent_name='region'),
    )


def test_a_handle_that_appears_in_a_region_waits_until_all_of_it_is_clean(host):
    # given a region of which two parts are handed back, and the first clean-up blanks it
    host.report(shared())
    host.bind(host.request(), host.request(), provider='function')
    delete_all(host)
    first, second = host.report(shared()).tasks
    blank = [objects.Step(name='blank', seconds=1.0)]
    host.finish(first, steps=blank)
    # when the empty region is reported, the second is still to come
    host.report(blanked())
    with pytest.raises(errors.HandleNotClean):
        host.bind(host.request(), provider='region')
    host.finish(second, steps=blank)
    host.bind(host.request(), provider='region')
    assert host.states() == ['Initial', 'Bound']


def test_a_server_that_waits_for_its_image_does_not_wait_for_a_timer_after_a_clean_up(host):
    # given a region that lost its image while one of its parts was being cleaned
    handles = [handle(key, cleaning='reset') for key in 'ab']
    loaded, lost = (
        device(
            'fpga',
            deployable('card'),
            deployable('part', *handles, parent_name='card', is_programmable=True, content=content),
        )
        for content in (LOADED, LOST)
    )
    host.report(lost)
    host.bind(host.request(GROUP))
    [program] = host.report(lost).tasks
    finish(host, program, image_uuid=IMAGE, content=LOADED, image_facts={'visibility': 'public'})
    host.report(loaded)
    other = '33333333-3333-4333-8333-333333333333'
    host.bind(host.request(GROUP), server=other)
    with transact(host.db, CAUSE) as unit:
        arqs.delete_of_instance(unit, other)
    [clean] = host.report(lost, is_first=True).tasks
    assert (host.states(), clean.kind) == (['Provisioning'], TaskKind.CLEAN)
    # when that has ended, its host reports at once, and gets the task
    assert finish(host, clean).hosts_to_wake == {NAME}
    assert [task.kind for task in host.report(lost).tasks] == [TaskKind.PROGRAM]


def test_an_image_that_was_found_before_its_card_was_removed_is_loaded(host):
    # given a host that finds the image of a task in the region, and whose card is pulled
    host.report(region())
    host.bind(host.request(GROUP))
    [program] = host.report(region()).tasks
    host.report(region(), returned=['fpga'])
    # when its result comes after the report
    [again] = host.finish(program, image_uuid=IMAGE, is_touched=False)
    assert (again.uuid, again.loaded_image) == (program.uuid, None)
    assert host.states() == ['BindStarted']
    load(host, again)
    assert host.states() == ['Bound']


def test_a_region_is_offered_after_a_failed_load_when_its_host_has_reported_it(host):
    # given a tool that failed, and may still be writing
    host.report(region())
    host.bind(host.request(GROUP))
    [program] = host.report(region()).tasks
    host.finish(program, 'fpgaconf was killed, but is still there.', can_retry=False)
    assert host.states() == ['BindFailed']
    with pytest.raises(errors.Conflict, match='could not be loaded'):
        host.bind(host.request())
    host.report(region())
    host.bind(host.request())
    assert host.states()[-1] == 'Bound'


def test_a_function_is_cleaned_after_the_image_that_is_loaded_into_its_region(host):
    # given a server whose host loads the image of its region again
    host.report(card(LOADED))
    host.bind(host.request({'resources:FPGA': '1', 'accel:cleaning': 'full'}), provider='function0')
    set_image(host)
    [program] = host.report(card(LOST), is_first=True).tasks
    # when the server is deleted meanwhile
    delete_all(host)
    [program] = host.report(card(LOST)).tasks
    assert program.kind == TaskKind.PROGRAM
    load(host, program)
    [clean] = host.report(card(LOADED)).tasks
    assert clean.kind == TaskKind.CLEAN


@ends
def test_a_host_learns_that_the_request_for_an_image_has_ended(host, end):
    host.report(region())
    host.bind(host.request(GROUP))
    [program] = host.report(region()).tasks
    assert is_wanted(host, program)
    end(host)
    assert not is_wanted(host, program)
    # when the host has ended the task, the region is free and unchanged
    host.finish(program, 'The request has ended.', can_retry=False, is_touched=False)
    assert host.all(models.AttachHandle.withheld) == [None]


def test_the_image_of_a_running_server_is_wanted_until_the_server_goes(host):
    host.report(region())
    host.bind(host.request(GROUP))
    [program] = host.report(region()).tasks
    load(host, program)
    # when its host has lost power
    [program] = host.report(region(content=LOST), is_first=True).tasks
    assert host.states() == ['Provisioning']
    assert is_wanted(host, program)
    delete_all(host)
    assert not is_wanted(host, program)


def test_what_an_operator_loads_is_always_wanted(host):
    host.report(region())
    program_for_operator(host)
    [program] = host.report(region()).tasks
    assert is_wanted(host, program)
    # but not from another host, nor when it was done
    assert not is_wanted(host, program, 'compute2')
    load(host, program)
    assert not is_wanted(host, program)


def test_the_result_of_a_task_is_known_after_others_were_loaded(host):
    def is_programmed(task):
        with host.db.reader() as session:
            return tasks.is_programmed(session, task.uuid)

    host.report(region())
    program_for_operator(host)
    [first] = host.report(region()).tasks
    assert not is_programmed(first)
    load(host, first)
    program_for_operator(host)
    [second] = host.report(region()).tasks
    host.finish(second, 'The card is on fire.', can_retry=False)
    assert is_programmed(first)
    with pytest.raises(errors.ProgramFailed, match='on fire'):
        is_programmed(second)


def test_an_operator_does_not_rely_on_a_task_whose_request_has_ended(host):
    host.report(region())
    host.bind(host.request(GROUP))
    [program] = host.report(region()).tasks
    # given that the same image is being loaded for a request, nothing more is to be done
    program_for_operator(host)
    delete_all(host)
    with pytest.raises(errors.CannotProgram, match='wait until that has ended'):
        program_for_operator(host)
    host.finish(program, 'The request has ended.', can_retry=False, is_touched=False)
    program_for_operator(host)
    [program] = host.report(region()).tasks
    assert program.arq_uuid is None


# -- reports of a discovery that began before a task had ended -----------------------------------


OLD, NEW = 'd8424dc4a4a3c413f89e433683f9040b', '8568ab4e6ba54616bb652a578330a8eb'


def doing(function, **facts):
    """A region with this function."""
    attribute = objects.Attribute(key='function_uuid', value=function)
    traits = ['CUSTOM_RED', f'CUSTOM_FUNCTION_{function.upper()}']
    return region(attributes=[attribute], traits=traits, **facts)


def functions(host):
    """The functions of the region: those of its attributes, and those of its traits."""
    with host.db.reader() as session:
        row = session.scalars(
            sa.select(models.Deployable).where(models.Deployable.name == 'part')
        ).one()
        shown = [each.value for each in row.attributes if each.key.startswith('function_uuid')]
        return shown, [trait[16:].lower() for trait in row.traits if 'FUNCTION' in trait]


def bind_for(host, function):
    host.bind(host.request({'resources:FPGA': '1', 'accel:function_id': function}))
    return host.states()[-1]


def test_an_old_report_does_not_bring_back_a_function_that_was_replaced(host):
    host.report(doing(OLD))
    with transact(host.db, CAUSE) as unit:
        [uuid] = host.all(models.Deployable.uuid)[1:]
        tasks.program_for_operator(unit, uuid, IMAGE)
    [task] = host.report(doing(OLD)).tasks
    # when a report arrives after the result, and its discovery began before
    host.finish(task, image_uuid=IMAGE, content={'function': NEW})
    host.report(doing(OLD), in_flux=[uuid])
    assert functions(host) == ([], [])
    assert bind_for(host, OLD) == 'BindStarted'


def test_an_old_report_does_not_bring_back_a_function_that_was_blanked(host):
    host.report(doing(OLD))
    host.bind(host.request({'resources:FPGA': '1', 'accel:cleaning': 'full'}))
    delete_all(host)
    [task] = host.report(doing(OLD)).tasks
    host.finish(task, steps=[objects.Step(name='blank', seconds=1.0)])
    host.report(doing(OLD), in_flux=host.all(models.AttachHandle.uuid))
    assert functions(host) == ([], [])
    assert bind_for(host, OLD) == 'BindStarted'


def test_a_function_that_is_known_is_shown_while_tasks_run(host):
    host.report(doing(OLD))
    host.report(doing(OLD), in_flux=host.all(models.AttachHandle.uuid))
    assert functions(host) == ([OLD], [OLD])


def test_a_new_function_is_shown_when_the_tasks_have_ended(host):
    host.report(doing(OLD))
    host.report(doing(NEW), in_flux=host.all(models.AttachHandle.uuid))
    assert functions(host) == ([], [])
    host.report(doing(NEW))
    assert functions(host) == ([NEW], [NEW])
    assert bind_for(host, NEW) == 'Bound'


def test_tasks_of_one_region_do_not_hide_the_function_of_another(host):
    def both(function):
        more = deployable(
            'other',
            'b',
            parent_name='card',
            is_programmable=True,
            attributes=[objects.Attribute(key='function_uuid', value=function)],
        )
        [first, part] = region().deployables
        return device('fpga', first, more, part)

    host.report(both(OLD))
    [card, _, part] = host.all(models.Deployable.uuid)
    # also those that write the flash of the card
    host.report(both(NEW), in_flux=[card, part])
    assert bind_for_other(host) == 'Bound'


def bind_for_other(host):
    host.bind(host.request({'resources:FPGA': '1', 'accel:function_id': NEW}), provider='other')
    return host.states()[-1]
