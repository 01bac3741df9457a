# SPDX-License-Identifier: Apache-2.0
"""One handle of each IOMMU group is offered, and reports do not change which."""

import pytest

from cyborg import objects
from cyborg.conductor.engine import iommu_groups
from cyborg.db.sqlalchemy import models


def info(bus, function=0):
    return {'domain': '0000', 'bus': bus, 'device': '00', 'function': str(function)}


def address(bus, function=0):
    return f'0000:{bus}:00.{function}'


def card(bus, functions=1, handle_type='PCI', **facts):
    """A device with some functions, as its row."""
    handles = [
        models.AttachHandle(
            uuid=f'{bus}.{function}',
            type=handle_type,
            info=info(bus, function),
            is_missing=False,
        )
        for function in range(functions)
    ]
    return models.Device(
        **{'status': 'enabled', 'is_missing': False} | facts,
        deployables=[models.Deployable(attach_handles=handles)],
    )


def handles(row):
    return row.deployables[0].attach_handles


def report(*groups):
    """Each group is a list of addresses in the form of their info."""
    return objects.Report(
        devices=[
            objects.Device(
                deployables=[
                    objects.Deployable(
                        attach_handles=[
                            objects.AttachHandle(
                                info=each,
                                companions=[
                                    iommu_groups.ADDRESS.format_map(other)
                                    for other in group
                                    if other != each
                                ],
                            )
                        ]
                    )
                ]
            )
            for group in groups
            for each in group
        ]
    )


def settle(told, rows, found_again=()):
    """What a report does: the rows as they were, as the driver shows them, what is withheld."""
    groups = iommu_groups.Groups(told, rows)
    for row in found_again:
        row.fault = None
        for handle in handles(row):
            handle.is_missing = False
    groups.withhold(rows)
    return groups


def offered(*rows):
    return [handle.uuid for row in rows for handle in handles(row) if not handle.is_missing]


def test_the_lowest_address_of_a_group_is_offered_first():
    low, high = card('3b'), card('5e')
    settle(report([info('5e'), info('3b')]), [high, low])
    assert offered(high, low) == ['3b.0']


def test_the_device_that_is_withheld_names_the_one_that_is_offered():
    low, high = card('3b'), card('5e')
    settle(report([info('3b'), info('5e')]), [low, high])
    assert low.fault is None
    assert high.fault.startswith(f'{address("5e")} shares its IOMMU group with {address("3b")},')


def test_a_device_that_still_offers_a_handle_has_no_fault():
    row = card('3b', functions=2)
    settle(report([info('3b', 0), info('3b', 1)]), [row])
    assert offered(row) == ['3b.0']
    assert row.fault is None


def test_the_handle_that_was_offered_before_stays_offered():
    low, high = card('3b'), card('5e')
    handles(low)[0].is_missing = True
    settle(report([info('3b'), info('5e')]), [low, high], found_again=[low])
    assert offered(low, high) == ['5e.0']


@pytest.mark.parametrize('use', [{'arq_id': 7}, {'withheld': 'cleaning'}])
def test_a_handle_in_use_is_kept_before_all_others(use):
    low, high = card('3b'), card('5e')
    for name, value in use.items():
        setattr(handles(high)[0], name, value)
    settle(report([info('3b'), info('5e')]), [low, high])
    assert offered(low, high) == ['5e.0']


def test_no_handle_is_lost_while_two_of_a_group_are_held():
    rows = [card('3b'), card('5e'), card('af')]
    handles(rows[1])[0].arq_id, handles(rows[2])[0].arq_id = 1, 2
    settle(report([info('3b'), info('5e'), info('af')]), rows)
    assert offered(*rows) == ['5e.0', 'af.0']


@pytest.mark.parametrize('facts', [{'status': 'maintaining'}, {'fault': 'It burns.'}])
def test_another_handle_takes_the_place_of_one_that_cannot_be_had(facts):
    low, high = card('3b', **facts), card('5e')
    settle(report([info('3b'), info('5e')]), [low, high])
    assert offered(low, high) == ['5e.0']
    assert high.fault is None
    if 'fault' in facts:
        assert low.fault == 'It burns.'


def test_a_handle_that_its_driver_does_not_show_is_not_chosen():
    low, high = card('3b'), card('5e')
    handles(low)[0].is_missing = True
    settle(report([info('3b'), info('5e')]), [low, high])
    assert offered(low, high) == ['5e.0']


def test_the_rows_of_a_device_that_is_gone_take_no_part():
    low, high = card('3b', is_missing=True), card('5e')
    groups = settle(report([info('3b'), info('5e')]), [low, high])
    assert [handle.uuid for handle in groups.handles] == ['5e.0']
    assert not handles(high)[0].is_missing


def test_each_group_offers_one_handle():
    rows = [card(bus) for bus in ('3b', '5e', 'af', 'd8')]
    settle(report([info('3b'), info('5e')], [info('af'), info('d8')]), rows)
    assert offered(*rows) == ['3b.0', 'af.0']


def test_functions_with_groups_of_their_own_are_all_offered():
    rows = [card('3b'), card('5e')]
    groups = settle(report([info('3b')], [info('5e')]), rows)
    assert offered(*rows) == ['3b.0', '5e.0']
    assert groups.handles == []


def test_a_mediated_device_is_no_member_of_a_group():
    low, high = card('3b', handle_type='MDEV'), card('5e')
    settle(report([info('3b'), info('5e')]), [low, high])
    assert offered(low, high) == ['3b.0', '5e.0']


def test_a_row_of_a_driver_that_failed_is_a_member_of_the_groups_that_name_it():
    silent, told = card('3b'), card('5e')
    handles(silent)[0].arq_id = 7
    lone = report([info('3b'), info('5e')])
    lone.devices = lone.devices[1:]
    settle(lone, [silent, told])
    assert offered(silent, told) == ['3b.0']
