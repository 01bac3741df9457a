# SPDX-License-Identifier: Apache-2.0
"""Cards that were removed and are back before the agent looks: a report tells of each removal."""

import contextlib
from unittest import mock

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.accelerator import driver
from cyborg.accelerator.driver import Driver
from cyborg.agent import hotplug
from cyborg.agent.driver_guard import Guard
from cyborg.agent.inventory import Inventory
from cyborg.agent.readiness import Readiness
from cyborg.sim.host import Host

ADDRESS = '0000:3b:00.0'


@pytest.fixture
def reports():
    return []


@pytest.fixture
def inventory(tmp_path, reports, monkeypatch):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    host = Host(tmp_path / 'sys')
    host.plug_in('10de:1eb8', at=ADDRESS)
    [loaded] = driver.load(['nvidia_gpu_driver'], conf, host.sysfs)
    worker = mock.Mock(count=0, prepared={}, cards_being_programmed=set())
    worker.changing.return_value = worker.in_flux.return_value = []
    worker.cards_programmed.return_value = set()
    worker.lost.return_value = {}
    made = Inventory(
        conf, 'compute1', [Guard(loaded, 60)], mock.Mock(), mock.Mock(), worker, host.sysfs
    )
    monkeypatch.setattr(made, '_publish', lambda: None)
    monkeypatch.setattr(made, '_send_report', lambda asker, report: reports.append(report))
    return made


@pytest.mark.parametrize('address', [ADDRESS, hotplug.ANY])
def test_a_second_removal_during_a_report_is_told_by_the_next(
    inventory, reports, monkeypatch, address
):
    def send(asker, report):
        if not reports:
            inventory.note_removal(address)
        reports.append(report)

    monkeypatch.setattr(inventory, '_send_report', send)
    inventory.note_removal(address)
    for _ in range(3):
        inventory.sync()
        inventory._digest = reports[-1].digest
    assert [len(report.returned) for report in reports] == [1, 1]


def test_a_removal_is_told_again_if_the_report_was_not_accepted(inventory, reports, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(inventory, '_send_report', mock.Mock(side_effect=errors.Unavailable('no')))
        inventory.note_removal(ADDRESS)
        with pytest.raises(errors.Unavailable):
            inventory.sync()
    inventory.sync()
    assert [len(report.returned) for report in reports] == [1]


def test_a_removal_is_kept_while_a_driver_fails(inventory, reports, monkeypatch):
    [guard] = inventory._guards
    with monkeypatch.context() as patch:
        patch.setattr(guard, 'discover', mock.Mock(side_effect=errors.Unavailable('no')))
        inventory.note_removal(ADDRESS)
        inventory.sync()
    assert reports[0].drivers[0].status == objects.DriverStatus.FAILED
    inventory.sync()
    assert [len(report.returned) for report in reports] == [0, 1]


def noted(inventory):
    """The cards that each round noted as removed."""
    return [set(call.args[0]) for call in inventory._worker.note_removed.call_args_list]


def test_the_worker_knows_of_a_removal_before_the_report_is_sent(inventory, monkeypatch):
    seen = []
    monkeypatch.setattr(
        inventory, '_send_report', lambda asker, report: seen.append(noted(inventory))
    )
    inventory.note_removal(ADDRESS)
    inventory.sync()
    assert seen == [[{ADDRESS}]]


def test_the_worker_knows_of_a_card_that_is_gone_unless_its_driver_failed(
    inventory, reports, monkeypatch
):
    [guard] = inventory._guards
    inventory.sync()
    with monkeypatch.context() as patch:
        patch.setattr(guard, 'discover', mock.Mock(side_effect=errors.Unavailable('no')))
        inventory.sync()
        patch.setattr(guard, 'discover', list)
        inventory.sync()
    inventory.sync()
    assert noted(inventory) == [set(), set(), {ADDRESS}, set()]


@pytest.mark.parametrize('address', [ADDRESS, hotplug.ANY])
def test_the_worker_knows_of_a_removal_before_the_next_round(inventory, address):
    inventory.sync()
    inventory.note_removal('0000:99:00.0')
    inventory.note_removal(address)
    assert noted(inventory) == [set(), {ADDRESS}]


def test_the_tasks_of_a_plan_do_not_rely_on_images_of_cards_that_were_removed_since(
    inventory, monkeypatch
):
    def send(asker, report):
        inventory.note_removal(ADDRESS)
        inventory._worker.perform(['a task'], 0)

    inventory.sync()
    monkeypatch.setattr(inventory, '_send_report', send)
    inventory._digest = None
    inventory.sync()
    calls = [
        call for call in inventory._worker.mock_calls if call[0] in ('perform', 'note_removed')
    ]
    assert calls[-2:] == [mock.call.perform(['a task'], 0), mock.call.note_removed({ADDRESS})]


class Failing(Driver):
    """A driver that reports a card after some failures."""

    name, type = 'failing', 'GPU'

    def __init__(self, failures):
        self._failures = failures

    def discover(self):
        self._failures -= 1
        if self._failures >= 0:
            raise errors.DriverFailed(name=self.name, why='it fails.')
        return [objects.Device(key='late', type='GPU', vendor='10de', driver_name='')]


@pytest.mark.parametrize('told_first', [True, False], ids=['accepted', 'not accepted'])
def test_after_lost_events_each_card_is_told_once_also_while_a_driver_fails(
    inventory, reports, monkeypatch, told_first
):
    inventory._guards = [*inventory._guards, Guard(Failing(3), 60)]
    inventory.readiness = Readiness(guard.name for guard in inventory._guards)
    refusals = [] if told_first else [errors.Unavailable('no')]

    def send(asker, report):
        if refusals:
            raise refusals.pop()
        reports.append(report)
        inventory._digest = report.digest

    monkeypatch.setattr(inventory, '_send_report', send)
    inventory.note_removal(hotplug.ANY)
    for _ in range(6):
        with contextlib.suppress(errors.Unavailable):
            inventory.sync()
    assert [report.returned for report in reports if report.returned] == [[ADDRESS], ['late']]
