# SPDX-License-Identifier: Apache-2.0
"""A host does again what its requests need: after a restart, or when a card has lost its image."""

import pytest
import sqlalchemy as sa

from cyborg import errors, objects
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.arqs import Scope
from cyborg.objects import TaskKind, TaskState, Withheld
from tests.fixtures.reporting_host import CAUSE, SILENT_SINCE, deployable, device, handle

IMAGE = '11111111-1111-4111-8111-111111111111'
OTHER_IMAGE = '99999999-9999-4999-8999-999999999999'
ASKS_FOR_OTHER = {'resources:FPGA': '1', 'accel:bitstream_id': OTHER_IMAGE}
OTHER_SERVER = '22222222-2222-4222-8222-222222222229'
GROUP = {'resources:FPGA': '1', 'accel:bitstream_id': IMAGE}
ADMIN = Scope(None, SILENT_SINCE)


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


def loads(host):
    """What the history of the requests tells about loading their image."""
    told = zip(
        host.all(models.ArqTransition.event), host.all(models.ArqTransition.reason), strict=True
    )
    return [reason for event, reason in told if event == 'program'][1:]


def test_a_request_tells_why_its_lost_image_is_not_loaded_again(host):
    # given a running server whose card has lost its image
    host.report(region())
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    [task] = host.report(region(content={'function': 'y'}), is_first=True).tasks
    # when the attempts to load it fail
    for why in ('Glance is away.', 'Glance is away.', 'It is gone.', 'It is gone.'):
        [task] = host.finish(task, why, can_retry=False, is_touched=False)
    # then each reason is told once
    assert loads(host) == [
        f'Its image was not loaded: {why}' for why in ('Glance is away.', 'It is gone.')
    ]
    host.finish(task, image_uuid=IMAGE, content={'function': 'x'})
    assert host.states() == ['Bound']
    assert loads(host)[2:] == [f'Image {IMAGE} was loaded in 0.0 s.']


def test_a_request_tells_why_its_lost_image_cannot_be_loaded_at_all(host):
    def region(content):
        return device('fpga', deployable('part', 'a', 'b', is_programmable=True, content=content))

    host.report(region({'function': 'x'}))
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    # when the other handle of the region could not be cleaned
    with host.db.writer() as session:
        session.execute(
            sa.update(models.AttachHandle)
            .where(models.AttachHandle.arq_id.is_(None))
            .values(withheld=Withheld.QUARANTINED)
        )
    for _ in range(2):
        assert open_kinds(host.report(region({'function': 'y'}), is_first=True)) == []
    assert host.states() == ['Provisioning']
    [why] = loads(host)
    assert why.startswith('Its image was not loaded: ') and 'quarantine' in why


def test_the_image_of_an_operator_is_loaded_again_for_requests_that_name_none(host):
    host.report(region())
    host.bind(host.request())
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    plan = host.report(region(content={'function': 'y'}), is_first=True)
    [task] = plan.tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})


def region_of_two(content):
    return device('fpga', deployable('part', 'a', 'b', is_programmable=True, content=content))


def withhold(host, why):
    """Withhold the handles that nobody holds."""
    with host.db.writer() as session:
        is_free = models.AttachHandle.arq_id.is_(None)
        session.execute(sa.update(models.AttachHandle).where(is_free).values(withheld=why))


@pytest.mark.parametrize('content', [{'function': 'y'}, {}], ids=['shows it', 'never shows it'])
def test_the_image_of_an_operator_is_loaded_again_when_it_can(host, content):
    # given a server in a region with an image, which loses its power
    loaded = {'function': 'x'} if content else {}
    host.report(region_of_two(loaded), boot_id='first')
    host.bind(host.request())
    end_tasks(host, bitstream_id=IMAGE, bitstream_content=loaded or None)
    # while the other handle of the region could not be cleaned
    withhold(host, Withheld.QUARANTINED)
    host.report(region_of_two(content), is_first=True, boot_id='second')
    for _ in range(2):
        assert open_kinds(host.report(region_of_two(content), boot_id='second')) == []
    [why] = [each for each in host.all(models.ArqTransition.reason) if each and 'image' in each]
    assert 'quarantine' in why
    # when an operator has decided about that handle
    withhold(host, None)
    [task] = host.report(region_of_two(content), boot_id='second').tasks
    # then the image is loaded
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})
    host.finish(task, image_uuid=IMAGE, content=loaded)
    assert host.states() == ['Bound']
    assert open_kinds(host.report(region_of_two(loaded), boot_id='second')) == []


def test_the_image_of_an_operator_is_not_loaded_once_more_if_it_is_there(host):
    # given an image that was lost, and cannot be loaded now
    host.report(region_of_two({'function': 'x'}), boot_id='first')
    host.bind(host.request())
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'})
    withhold(host, Withheld.QUARANTINED)
    host.report(region_of_two({'function': 'y'}), is_first=True, boot_id='second')
    # when somebody else loads it
    assert open_kinds(host.report(region_of_two({'function': 'x'}), boot_id='second')) == []
    withhold(host, None)
    # then it is not loaded under the server
    assert open_kinds(host.report(region_of_two({'function': 'x'}), boot_id='second')) == []
    assert host.all(models.Deployable.bitstream_id) == [IMAGE]
    assert host.states() == ['Bound']


@pytest.mark.parametrize('shown', ['y', 'x'], ids=['lost', 'loaded by somebody else'])
def test_a_lost_image_is_loaded_again_when_the_request_that_asked_for_it_is_gone(host, shown):
    def report(function, **facts):
        return host.report(region_of_three({'function': function}), **facts)

    def region_of_three(content):
        part = deployable('part', 'a', 'b', 'c', is_programmable=True, content=content)
        return device('fpga', part)

    # given two servers that use an image, which one of them has asked for
    report('x', boot_id='first')
    asking = host.request(GROUP)
    host.bind(asking)
    facts = {'visibility': 'public'}
    end_tasks(host, bitstream_id=IMAGE, bitstream_content={'function': 'x'}, bitstream_facts=facts)
    host.bind(host.request(), server=OTHER_SERVER)
    end_tasks(host)
    # when it is lost, and cannot be loaded now
    withhold(host, Withheld.QUARANTINED)
    report('y', is_first=True, boot_id='second')
    assert host.states() == ['Provisioning', 'Provisioning']
    # and the one that has asked for it goes
    with transact(host.db, CAUSE) as unit:
        arqs.delete(unit, ADMIN, [asking], even_bound=True)
    withhold(host, None)
    # then the other gets it
    [task] = report(shown, boot_id='second').tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})
    host.finish(task, image_uuid=IMAGE, content={'function': 'x'})
    assert host.states() == ['Bound']


# -- a loss that shows only in a later report --------------------------------------------------


def card(*regions, **facts):
    """A card, with its region if that is shown already."""
    return device('fpga', deployable('card'), *regions, **facts)


def part(**facts):
    return deployable('part', 'a', parent_name='card', is_programmable=True, **facts)


LOADED, OTHER = {'function': 'x', 'shell': 's'}, {'function': 'y', 'shell': 's'}


@pytest.fixture
def programmed(host):
    """A host with a region that a request holds, with the image that it asks for."""
    host.report(card(part()))
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE, bitstream_content=LOADED)
    return host


def pull(host):
    assert open_kinds(host.report()) == []


UNCLEAR = {
    'pulled, then back without its region': (pull, lambda host: host.report(card())),
    'pulled, then back without content': (pull, lambda host: host.report(card(part()))),
    'pulled, then back with a part of its content': (
        pull,
        lambda host: host.report(card(part(content={'shell': 's'}))),
    ),
    'rebooted, and its region is not there yet': (lambda host: host.report(card(), is_first=True),),
    'rebooted, and its content cannot be read yet': (
        lambda host: host.report(card(part()), is_first=True),
    ),
    'rebooted, and its driver fails': (
        lambda host: host.report(is_first=True, driver_status='failed'),
    ),
}


@pytest.mark.parametrize('rounds', UNCLEAR.values(), ids=UNCLEAR)
def test_an_image_whose_loss_shows_later_is_loaded_again(programmed, rounds):
    for each in rounds:
        each(programmed)
    assert programmed.states() == ['Bound']
    # when a later report shows what the region has
    plan = programmed.report(card(part(content=OTHER)))
    assert open_kinds(plan) == [TaskKind.PROGRAM]
    assert programmed.states() == ['Provisioning']


@pytest.mark.parametrize('rounds', UNCLEAR.values(), ids=UNCLEAR)
def test_an_image_that_shows_later_is_not_loaded_again(programmed, rounds):
    for each in rounds:
        each(programmed)
    assert open_kinds(programmed.report(card(part(content=LOADED)))) == []
    # when another program replaces it afterwards, that is left alone
    assert open_kinds(programmed.report(card(part(content=OTHER)))) == []
    assert programmed.states() == ['Bound']


def test_the_image_of_an_operator_is_loaded_again_when_its_loss_shows_later(host):
    host.report(card(part()))
    host.bind(host.request())
    end_tasks(host, bitstream_id=IMAGE, bitstream_content=LOADED)
    host.report(card(), is_first=True)
    [task] = host.report(card(part(content=OTHER))).tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})


def test_an_image_that_was_loaded_since_is_not_loaded_twice(host):
    # given a region whose content was not seen since its host was started
    host.report(card(part()))
    end_tasks(host, bitstream_id=OTHER_IMAGE, bitstream_content=LOADED)
    host.report(card(part()), is_first=True)
    # when a bind loads an image into it, and the content cannot be read then
    host.bind(host.request(GROUP))
    [task] = host.report(card(part())).tasks
    host.finish(task, image_uuid=IMAGE)
    # then the image counts as loaded, whatever it shows
    assert open_kinds(host.report(card(part(content=OTHER)))) == []
    assert host.states() == ['Bound']


def test_no_image_is_loaded_into_a_region_that_is_not_there(programmed):
    end_tasks(programmed, bitstream_id=None)
    assert open_kinds(programmed.report(card(), is_first=True)) == []
    assert open_kinds(programmed.report(card(part()))) == [TaskKind.PROGRAM]


def test_a_card_that_was_away_between_two_reports_has_lost_its_image(programmed):
    plan = programmed.report(card(part(content=OTHER)), returned=['fpga'])
    assert open_kinds(plan) == [TaskKind.PROGRAM]


# -- hardware that never shows its content -----------------------------------------------------


@pytest.mark.parametrize(
    'wanted',
    [
        {'accel:bitstream_id': IMAGE},
        {'accel:bitstream_name': 'gzip'},
        {'accel:function_name': 'compress'},
    ],
    ids=lambda wanted: next(iter(wanted)),
)
def test_an_image_that_may_be_lost_is_loaded_for_the_next_request(host, wanted):
    # given a region with an image, which no request holds
    host.report(card(part()))
    facts = {'visibility': 'public', 'name': 'gzip', 'function_name': 'compress'}
    end_tasks(host, bitstream_id=IMAGE, bitstream_facts=facts)
    # when its host was off, and the report does not show what the region has
    host.report(card(part()), is_first=True)
    host.bind(host.request({'resources:FPGA': '1'} | wanted))
    assert host.states() == ['BindStarted']
    # then the image is loaded, whatever the region had
    [task] = host.report(card(part())).tasks
    assert (task.kind, task.loaded_image) == (TaskKind.PROGRAM, None)
    host.finish(task, image_uuid=IMAGE, image_facts=facts)
    assert host.states() == ['Bound']
    # and once only
    with transact(host.db, CAUSE) as unit:
        arqs.unbind(unit, ADMIN, host.all(models.ExtArq.uuid))
    host.report(card(part()))
    host.bind(host.request({'resources:FPGA': '1'} | wanted), server=OTHER_SERVER)
    assert host.states() == ['Unbound', 'Bound']


def test_a_function_that_is_shown_is_not_loaded_again(host):
    function = objects.Attribute(key='function_uuid', value=IMAGE)
    host.report(card(part(attributes=[function])), is_first=True)
    host.report(card(part(attributes=[function])), is_first=True)
    host.bind(host.request({'resources:FPGA': '1', 'accel:function_id': IMAGE}))
    assert host.states() == ['Bound']


def test_the_image_in_the_flash_of_a_card_stays_known(host):
    flash = deployable('card', is_programmable=True)
    host.report(device('fpga', flash, part()))
    end_tasks(host, bitstream_id=IMAGE)
    host.report(device('fpga', flash, part()), is_first=True)
    with host.db.writer() as session:
        row = session.scalars(sa.select(models.Deployable)).first()
        assert (row.name, row.may_have_lost_image) == ('card', False)


def power_off(host, *rounds):
    """Start a host again after a card was programmed that never shows its content; returns the
    plan of the last report."""
    host.report(card(part()), boot_id='first')
    for number, devices in enumerate(rounds):
        plan = host.report(*devices, is_first=number == 0, boot_id='second')
    return plan


BACK = {
    'with its host': ([card(part())],),
    'without its region at first': ([card()], [card(part())]),
    'later than its host': ([], [card(part())]),
    'not programmable at first': (
        [card(deployable('part', 'a', parent_name='card'))],
        [card(part())],
    ),
}


@pytest.mark.parametrize('rounds', BACK.values(), ids=BACK)
@pytest.mark.parametrize('group', [GROUP, None], ids=['asked for', 'loaded by an operator'])
def test_an_image_that_is_never_shown_is_loaded_again_after_a_reboot(host, group, rounds):
    host.report(card(part()), boot_id='first')
    host.bind(host.request(group))
    end_tasks(host, bitstream_id=IMAGE)
    [task] = power_off(host, *rounds).tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})
    assert host.states() == ['Provisioning']
    # and once only
    host.finish(task, image_uuid=IMAGE)
    assert host.states() == ['Bound']
    assert open_kinds(host.report(card(part()), boot_id='second')) == []
    assert open_kinds(host.report(card(part()), is_first=True, boot_id='second')) == []
    assert open_kinds(host.report(card(part()), is_first=True, boot_id='third')) != []


@pytest.mark.parametrize('boot_id', ['first', None], ids=['', 'agent of the previous release'])
@pytest.mark.parametrize('rounds', BACK.values(), ids=BACK)
def test_an_image_that_is_never_shown_is_loaded_again_after_its_card_was_pulled(
    host, rounds, boot_id
):
    host.report(card(part()), boot_id=boot_id)
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE)
    assert open_kinds(host.report(boot_id=boot_id)) == []
    for devices in rounds:
        plan = host.report(*devices, boot_id=boot_id)
    [task] = plan.tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': IMAGE})
    # and once only
    host.finish(task, image_uuid=IMAGE)
    assert host.states() == ['Bound']
    assert open_kinds(host.report(card(part()), boot_id=boot_id)) == []
    assert open_kinds(host.report(card(part()), is_first=True, boot_id=boot_id)) == []


@pytest.mark.parametrize('before, after', [('first', 'first'), (None, 'first'), ('first', None)])
def test_an_image_that_is_never_shown_is_not_loaded_under_a_server(host, before, after):
    """Its agent was started again, or is of another release; its host may have run all the time."""
    host.report(card(part()), boot_id=before)
    host.bind(host.request(GROUP))
    end_tasks(host, bitstream_id=IMAGE)
    assert open_kinds(host.report(card(part()), is_first=True, boot_id=after)) == []
    assert open_kinds(host.report(card(part()), boot_id=after)) == []
    assert host.states() == ['Bound']


def test_an_image_that_was_shown_is_not_lost_before_its_card_shows_another(programmed):
    programmed.report(card(part(content=LOADED)), boot_id='first')
    plan = programmed.report(card(part()), is_first=True, boot_id='second')
    assert open_kinds(plan) == []
    plan = programmed.report(card(part(content=LOADED)), boot_id='second')
    assert open_kinds(plan) == []


def test_an_image_that_nobody_holds_is_forgotten_after_a_reboot(host):
    flash = deployable('card', is_programmable=True)
    host.report(device('fpga', flash, part()), boot_id='first')
    end_tasks(host, bitstream_id=IMAGE)
    host.report(device('fpga', flash, part()), is_first=True, boot_id='second')
    # the flash keeps its image without power
    assert host.all(models.Deployable.bitstream_id) == [IMAGE, None]


def test_an_image_is_not_lost_in_the_boot_in_which_it_was_loaded(host):
    host.report(card(part()), boot_id='first', is_first=True)
    host.bind(host.request(GROUP))
    # given a host that starts again before it has loaded the image
    [task] = host.report(card(part()), boot_id='second', is_first=True).tasks
    host.finish(task, image_uuid=IMAGE)
    # when its agent is restarted before its next report
    assert open_kinds(host.report(card(part()), boot_id='second', is_first=True)) == []
    assert host.states() == ['Bound']


def test_the_boot_of_a_report_of_the_previous_release_is_not_known(host):
    host.report(card(part()), boot_id='first', is_first=True)
    # given an agent of the previous release, after a start of the host
    host.report(card(part()), is_first=True)
    host.bind(host.request(GROUP))
    [task] = host.report(card(part())).tasks
    host.finish(task, image_uuid=IMAGE)
    host.report(card(part()))
    # when it is upgraded
    assert open_kinds(host.report(card(part()), boot_id='second', is_first=True)) == []
    assert host.states() == ['Bound']


# -- functions that no image of Glance has brought ----------------------------------------------

FUNCTION_ID = '44444444-4444-4444-8444-444444444444'
ASKS_FOR_FUNCTION = {'resources:FPGA': '1', 'accel:function_id': FUNCTION_ID}


def with_function(*values, **facts):
    """A region that shows these functions."""
    return part(
        attributes=[objects.Attribute(key='function_uuid', value=each) for each in values],
        content={'function': ' '.join(values)} if values else {},
        **facts,
    )


def test_a_function_that_cannot_be_read_while_a_guest_uses_it_is_not_lost(host):
    host.report(card(with_function(FUNCTION_ID)), is_first=True, boot_id='first')
    host.bind(host.request(ASKS_FOR_FUNCTION))
    for content in ({}, {'shell': 's'}):
        hidden = card(part(content=content))
        assert open_kinds(host.report(hidden, boot_id='first')) == []
        assert open_kinds(host.report(hidden, is_first=True, boot_id='first')) == []
        assert host.states() == ['Bound']
    # when it shows that another has replaced it, it is loaded
    [task] = host.report(card(with_function(IMAGE)), boot_id='first').tasks
    assert task.image == {'function_id': FUNCTION_ID}
    assert host.states() == ['Provisioning']


def test_a_function_that_is_shown_below_its_region_is_not_lost(host):
    shared = device(
        'fpga',
        deployable('card'),
        deployable('region', parent_name='card', is_programmable=True, content={'function': 'x'}),
        deployable(
            'part',
            'a',
            parent_name='region',
            attributes=[objects.Attribute(key='function_uuid', value=FUNCTION_ID)],
        ),
    )
    host.report(shared, is_first=True)
    host.bind(host.request(ASKS_FOR_FUNCTION))
    assert open_kinds(host.report(shared, is_first=True)) == []
    assert host.states() == ['Bound']


# -- an agent that ends while it loads an image ------------------------------------------------


@pytest.mark.parametrize('content', [{}, LOADED], ids=['shows nothing', 'shows the old one'])
def test_an_image_that_may_be_half_replaced_is_not_taken_for_loaded(host, content):
    # given a region with an image, and another that its host is to load
    host.report(card(part()))
    facts = {'visibility': 'public'}
    end_tasks(host, bitstream_id=OTHER_IMAGE, bitstream_content=LOADED, bitstream_facts=facts)
    host.bind(host.request(GROUP))
    host.report(card(part(content=LOADED)))
    # when its agent ends meanwhile, and finds the image gone when it starts again
    [task] = host.report(card(part(content=content)), is_first=True).tasks
    assert task.loaded_image is None
    host.finish(task, error='The image is gone.', can_retry=False, is_touched=False)
    assert host.states() == ['BindFailed']
    host.report(card(part(content=content)))
    # then a request for the old one has it loaded
    assert host.all(models.Deployable.bitstream_id)[-1] is None
    host.bind(host.request(ASKS_FOR_OTHER), server=OTHER_SERVER)
    [task] = host.report(card(part(content=content))).tasks
    assert (task.kind, task.image) == (TaskKind.PROGRAM, {'bitstream_id': OTHER_IMAGE})


def test_an_image_stays_known_while_another_waits_to_be_loaded(host):
    host.report(card(part()))
    end_tasks(host, bitstream_id=OTHER_IMAGE, bitstream_content=LOADED)
    host.bind(host.request(GROUP))
    [task] = host.report(card(part(content=LOADED))).tasks
    # when the agent has run all the time, and has not begun
    host.finish(task, error='The image is gone.', can_retry=False, is_touched=False)
    assert host.all(models.Deployable.bitstream_id)[-1] == OTHER_IMAGE


# -- a region whose functions move between its accelerators --------------------------------------


def shared_region(above=(), **accelerators):
    """A card with a region: ``above`` are the PCI functions that the region offers itself, and
    each accelerator has the others."""

    def functions(numbers):
        address = {'domain': '0000', 'bus': 'af', 'device': '00'}
        return [handle(n, info={**address, 'function': n}) for n in numbers]

    content = {'function': '+'.join(sorted(accelerators)) or '0'}
    parts = [
        deployable(name, *functions(numbers), parent_name='region')
        for name, numbers in accelerators.items()
    ]
    region = deployable(
        'region', *functions(above), parent_name='card', is_programmable=True, content=content
    )
    return device('fpga', deployable('card'), region, *parts)


@pytest.mark.parametrize(
    'flash',
    [shared_region(first='1', second='2'), shared_region(above='12')],
    ids=['other accelerators', 'a blank region'],
)
@pytest.mark.parametrize('held', [1, 2])
@pytest.mark.parametrize('is_pulled', [False, True], ids=['reboot', 'pulled'])
def test_the_image_of_a_shared_region_is_loaded_again(host, flash, held, is_pulled):
    # given an image that was loaded, and of which servers have one function or both
    host.report(shared_region(third='12'))
    with host.db.writer() as session:
        session.execute(
            sa.update(models.Deployable)
            .where(models.Deployable.is_programmable)
            .values(
                bitstream_id=IMAGE,
                bitstream_content={'function': 'third'},
                bitstream_facts={'visibility': 'public'},
            )
        )
    for number in range(held):
        server = f'{number}{OTHER_SERVER[1:]}'
        host.bind(host.request(GROUP), provider='third', server=server)
    assert host.states() == ['Bound'] * held
    # when the card returns with what is in its flash
    if is_pulled:
        host.report()
    plan = host.report(flash, is_first=not is_pulled)
    # then it gets the image again
    assert host.states() == ['Provisioning'] * held
    [task] = plan.tasks
    assert task.kind == TaskKind.PROGRAM
    host.finish(task, image_uuid=IMAGE, content={'function': 'third'})
    assert host.states() == ['Bound'] * held
    # and the functions that it has not are gone
    host.report(shared_region(third='12'))
    assert len(host.all(models.AttachHandle.id)) == 2
    assert host.all(models.AttachHandle.is_missing) == [False, False]
    assert host.all(models.AttachHandle.withheld) == [None, None]


@pytest.mark.parametrize(
    'flash, provider',
    [(shared_region(first='1', second='2'), 'first'), (shared_region(above='12'), 'region')],
    ids=['other accelerators', 'a blank region'],
)
def test_a_function_that_a_server_has_is_not_offered_when_the_region_is_clean(
    host, flash, provider
):
    before = shared_region(third='12')
    for part in (*before.deployables, *flash.deployables):
        for each in part.attach_handles:
            each.cleaning = 'full'
    # given two servers, one of which gives its function back
    host.report(before)
    given_back = host.request()
    host.bind(host.request(), provider='third')
    host.bind(given_back, provider='third', server=OTHER_SERVER)
    with transact(host.db, CAUSE) as unit:
        arqs.unbind(unit, ADMIN, [given_back])
    # when the card loses its power before that is clean
    [task] = host.report(flash, is_first=True).tasks
    assert task.kind == TaskKind.CLEAN
    host.finish(task)
    # then the other function is not offered, under whatever name
    with pytest.raises(errors.NoFreeHandle):
        host.bind(host.request(), provider=provider, server=OTHER_SERVER)
