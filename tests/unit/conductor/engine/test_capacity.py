# SPDX-License-Identifier: Apache-2.0
"""Which units are free, in use or withheld; counted by model, and shown one by one."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg import objects
from cyborg.conductor.engine import capacity
from cyborg.db.sqlalchemy import clock, models, units
from cyborg.objects import DeviceStatus, Obstacle, Withheld
from tests.fixtures.reporting_host import NAME, deployable, device

LATELY = datetime.timedelta(minutes=5)


@pytest.fixture
def card(host):
    """A host with one card of three units, of which a request holds the first."""
    host.report(device('card', deployable('part', 'a', 'b', 'c')))
    host.bind(host.request())
    return host


def by_model(host):
    """In use, free, and the withheld units by obstacle, of the only model."""
    with host.db.reader() as session:
        [found] = capacity.by_model(units.parts(session, clock.now() - LATELY))
    assert found.units == found.in_use + found.free + sum(found.withheld.values())
    return found.in_use, found.free, found.withheld


def one_by_one(host):
    """The obstacle of each unit of the only deployable; the first is held."""
    with host.db.reader() as session:
        agent = units.host(session, NAME)
        devices, reserved = units.tree(session, NAME)
    is_silent = capacity.is_silent(agent, clock.now() - LATELY)
    shown = objects.HostUnits(hostname=NAME, is_alive=not is_silent, devices=devices)
    capacity.judge(shown, reserved, agent.conflicts)
    [found] = shown.devices
    [part] = found.deployables
    assert part.units[0].arq_uuid is not None
    return [unit.withheld for unit in part.units]


def write(host, model, key=None, **values):
    update = sa.update(model)
    if key is not None:
        update = update.where(model.key == key)
    with host.db.writer() as session:
        session.execute(update.values(**values))


def test_a_unit_is_held_or_free(card):
    assert by_model(card) == (1, 2, {})
    assert one_by_one(card) == [None, None, None]


@pytest.mark.parametrize(
    ('values', 'obstacle'),
    [
        ({'withheld': Withheld.CLEANING}, Obstacle.BEING_CLEANED),
        ({'withheld': Withheld.PROGRAMMING}, Obstacle.BEING_PROGRAMMED),
        ({'withheld': Withheld.QUARANTINED}, Obstacle.QUARANTINED),
        ({'is_missing': True}, Obstacle.USED_BY_OTHERS),
    ],
)
def test_a_unit_that_is_withheld_is_counted_by_its_obstacle(card, values, obstacle):
    write(card, models.AttachHandle, key='b', **values)
    assert by_model(card) == (1, 1, {obstacle: 1})
    assert one_by_one(card) == [None, obstacle, None]


@pytest.mark.parametrize(
    ('model', 'values', 'obstacle'),
    [
        (models.Agent, {'last_heartbeat': clock.now() - 2 * LATELY}, Obstacle.AGENT_SILENT),
        (models.Agent, {'conflicts': {'compute1_part': 'nova'}}, None),
        (models.Agent, {'conflicts': {'part': 'nova'}}, Obstacle.CONFLICT),
        (models.Device, {'status': DeviceStatus.MAINTAINING}, Obstacle.DISABLED),
        (models.Device, {'fault': 'It burns.'}, Obstacle.AT_FAULT),
        (models.Device, {'is_missing': True}, Obstacle.AT_FAULT),
    ],
)
def test_what_concerns_the_whole_device_withholds_all_units_that_no_request_holds(
    card, model, values, obstacle
):
    write(card, model, **values)
    assert by_model(card) == ((1, 0, {obstacle: 2}) if obstacle else (1, 2, {}))
    assert one_by_one(card) == [None, obstacle, obstacle]


def test_a_unit_has_one_obstacle_that_of_the_device_first(card):
    write(card, models.AttachHandle, key='b', withheld=Withheld.QUARANTINED)
    write(card, models.Device, fault='It burns.')
    assert by_model(card) == (1, 0, {Obstacle.AT_FAULT: 2})
    assert one_by_one(card) == [None, Obstacle.AT_FAULT, Obstacle.AT_FAULT]


@pytest.mark.parametrize(('reserved', 'free'), [(1, 1), (2, 0), (5, 0)])
def test_units_whose_resources_others_use_are_not_free(card, reserved, free):
    write(card, models.Deployable, reserved=reserved)
    assert by_model(card) == (1, free, {Obstacle.USED_BY_OTHERS: 2 - free})
    withheld = [Obstacle.USED_BY_OTHERS] * (2 - free)
    assert one_by_one(card) == [None] * (1 + free) + withheld


def test_models_and_classes_are_counted_apart(host):
    host.report(
        device('one', deployable('first', 'a'), model='red'),
        device('two', deployable('second', 'b', 'c'), model='blue'),
        device('three', deployable('third', 'd'), model='red'),
        device('four', deployable('fourth', 'e', resource_class='PGPU'), model='red'),
    )
    with host.db.reader() as session:
        found = capacity.by_model(units.parts(session, clock.now() - LATELY))
    assert [(each.model, each.resource_class, each.units, each.hosts) for each in found] == [
        ('blue', 'FPGA', 2, 1),
        ('red', 'FPGA', 2, 1),
        ('red', 'PGPU', 1, 1),
    ]
