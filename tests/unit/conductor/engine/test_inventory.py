# SPDX-License-Identifier: Apache-2.0
"""A report becomes rows, and the rows become the providers of Placement."""

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.conductor.engine import arqs, inventory
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import models
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects import Withheld
from tests.fixtures.reporting_host import SERVER, deployable, device, handle

OTHER, THIRD = (f'{each}9999999-9999-4999-8999-999999999999' for each in '89')


def figures(plan):
    return {each.name: (each.reserved, each.total) for each in plan.providers}


def test_a_card_is_published_with_its_class_its_traits_and_all_its_handles(host):
    plan = host.report(device('card', deployable('part', 'a', 'b')))
    [provider] = plan.providers
    assert (provider.name, provider.resource_class, provider.traits) == (
        'part',
        'FPGA',
        ['CUSTOM_RED'],
    )
    assert (provider.reserved, provider.total) == (0, 2)


def test_class_traits_and_reserved_count_are_stored_with_the_deployable(host):
    host.report(device('card', deployable('part', 'a', 'b', reserved=1)))
    assert host.all(models.Deployable.resource_class) == ['FPGA']
    assert host.all(models.Deployable.traits) == [['CUSTOM_RED']]
    assert host.all(models.Deployable.reserved) == [1]


def test_clients_find_them_among_the_attributes(host):
    host.report(device('card', deployable('part', 'a', reserved=1)))
    shown = dict(zip(host.all(models.Attribute.key), host.all(models.Attribute.value), strict=True))
    assert shown == {'rc': 'FPGA', 'trait0': 'CUSTOM_RED', 'reserved': '1'}


def test_what_others_use_is_reserved(host):
    plan = host.report(device('card', deployable('part', 'a', 'b', 'c', reserved=2)))
    assert figures(plan) == {'part': (2, 3)}


def test_more_cannot_be_reserved_than_there_is(host):
    plan = host.report(device('card', deployable('part', 'a', reserved=5)))
    assert figures(plan) == {'part': (1, 1)}


def test_new_traits_and_another_class_replace_the_old_ones(host):
    host.report(device('card', deployable('part', 'a')))
    plan = host.report(
        device('card', deployable('part', 'a', resource_class='PGPU', traits=['CUSTOM_BLUE']))
    )
    [provider] = plan.providers
    assert (provider.resource_class, provider.traits) == ('PGPU', ['CUSTOM_BLUE'])


def test_a_deployable_without_a_class_keeps_the_one_it_had_while_it_has_handles(host):
    host.report(device('card', deployable('part', 'a')))
    plan = host.report(device('card', deployable('part', 'a', resource_class=None)))
    assert [each.resource_class for each in plan.providers] == ['FPGA']


def test_a_card_that_is_gone_is_no_longer_published(host):
    host.report(device('card', deployable('part', 'a')))
    assert host.report().providers == []
    assert host.all(models.Device.key) == []


def test_a_card_of_a_driver_that_failed_stays(host):
    host.report(device('card', deployable('part', 'a')))
    assert figures(host.report(driver_status='failed')) == {'part': (0, 1)}


def test_a_card_that_a_request_holds_stays_and_is_fully_reserved(host):
    host.report(device('card', deployable('part', 'a', 'b')))
    host.bind(host.request())
    assert figures(host.report()) == {'part': (1, 1)}
    assert host.all(models.Device.is_missing) == [True]


def test_a_card_that_returns_has_the_same_handles(host):
    host.report(device('card', deployable('part', 'a', 'b')))
    before = host.all(models.AttachHandle.uuid)
    host.report()
    host.report(device('card', deployable('part', 'a', 'b')))
    assert host.all(models.AttachHandle.uuid) == before


def test_a_faulty_card_is_fully_reserved(host):
    plan = host.report(device('card', deployable('part', 'a', 'b'), fault='It burns.'))
    assert figures(plan) == {'part': (2, 2)}


def test_a_handle_that_another_program_uses_is_reserved(host):
    plan = host.report(device('card', deployable('part', 'a', handle('b', occupant='stranger'))))
    assert figures(plan) == {'part': (1, 2)}
    assert host.all(models.AttachHandle.is_missing) == [False, True]


def functions(*numbers):
    """Handles of virtual functions: the same ones for the same numbers, wherever they are."""
    return [
        handle(
            f'vf{number}',
            info={'domain': '0000', 'bus': '3b', 'device': '00', 'function': str(number)},
        )
        for number in numbers
    ]


def empty_region():
    return device('card', deployable('part', *functions(1, 2)))


def loaded_region():
    """The same card with an image, which offers the functions below the region."""
    return device(
        'card', deployable('part'), deployable('loaded', *functions(1, 2), parent_name='part')
    )


def test_a_function_that_a_request_holds_is_not_offered_by_another_part_of_the_card(host):
    # given a request that holds a function of an empty region
    host.report(empty_region())
    host.bind(host.request())
    # when the region offers the same functions below its accelerator
    plan = host.report(loaded_region())
    # then the function that is held is not given out twice
    assert figures(plan) == {'part': (1, 1), 'loaded': (1, 2)}
    host.bind(host.request(), provider='loaded', server=OTHER)
    with pytest.raises(errors.NoFreeHandle):
        host.bind(host.request(), provider='loaded', server=THIRD)
    holders = zip(
        host.all(models.AttachHandle.info), host.all(models.AttachHandle.arq_id), strict=True
    )
    assert sorted(info['function'] for info, arq in holders if arq is not None) == ['1', '2']
    # and when the request is gone, its function is offered
    with transact(host.db, Cause('test')) as unit:
        arqs.delete_of_instance(unit, SERVER)
    assert figures(host.report(loaded_region())) == {'part': (0, 0), 'loaded': (0, 2)}


def test_a_function_that_could_not_be_cleaned_is_not_offered_by_another_part_of_the_card(host):
    host.report(empty_region())
    with host.db.writer() as session:
        session.execute(
            sa.update(models.AttachHandle)
            .where(models.AttachHandle.key == 'vf1')
            .values(withheld=Withheld.QUARANTINED)
        )
    assert figures(host.report(loaded_region())) == {'part': (1, 1), 'loaded': (1, 2)}


def test_a_function_stays_with_its_request_when_the_image_is_gone(host):
    host.report(loaded_region())
    host.bind(host.request(), provider='loaded')
    assert figures(host.report(empty_region())) == {'part': (1, 2), 'loaded': (1, 1)}


def test_children_come_after_their_parents(host):
    plan = host.report(
        device(
            'card',
            deployable('region', 'a', parent_name='fpga'),
            deployable('fpga', resource_class=None),
        )
    )
    parent, child = plan.providers
    assert (parent.name, parent.resource_class, parent.total) == ('fpga', None, 0)
    assert (child.name, child.parent_uuid) == ('region', parent.uuid)


def test_two_cards_are_stored_although_a_third_one_cannot_be(host):
    plan = host.report(
        device('one', deployable('one', 'a')),
        device('bad', deployable('bad', 'same', 'same')),
        device('two', deployable('two', 'a')),
        is_apart=True,
    )
    assert {each.name for each in plan.providers} == {'one', 'two'}
    faults = dict(zip(host.all(models.Device.key), host.all(models.Device.fault), strict=True))
    assert faults['one'] is faults['two'] is None
    assert faults['bad'].startswith(inventory.NOT_STORED[:30])


@pytest.mark.parametrize('traits', [[], ['CUSTOM_A', 'CUSTOM_B']])
def test_a_report_without_changes_changes_no_row(host, traits):
    host.report(device('card', deployable('part', 'a', traits=traits)))
    before = host.all(models.Deployable.updated_at)
    host.report(device('card', deployable('part', 'a', traits=traits)))
    assert host.all(models.Deployable.updated_at) == before
