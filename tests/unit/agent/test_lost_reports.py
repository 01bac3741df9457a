# SPDX-License-Identifier: Apache-2.0
"""Reports whose answer was lost: the conductor may have stored them."""

from unittest import mock

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import objects
from cyborg.accelerator import driver
from cyborg.agent.driver_guard import Guard
from cyborg.agent.inventory import NOTHING_REPORTED, Inventory
from cyborg.sim.host import Host

MODEL, ADDRESS = '10de:1eb8', '0000:3b:00.0'


class Conductor:
    """One that stores every report, and loses answers when told so."""

    def __init__(self):
        self.cards, self.first, self.beats, self.loses_answers = [], [], [], False

    def report(self, context, report):
        self.cards.append(len(report.devices))
        self.first.append(report.is_first)
        if self.loses_answers:
            raise messaging.MessagingTimeout
        return objects.Plan(providers=[], tasks=[])

    def heartbeat(self, context, hostname, digest):
        self.beats.append(digest)


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path / 'sys')
    made.plug_in(MODEL, at=ADDRESS)
    return made


@pytest.fixture
def conductor():
    return Conductor()


@pytest.fixture
def inventory(host, conductor, monkeypatch):
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    [loaded] = driver.load(['nvidia_gpu_driver'], conf, host.sysfs)
    worker = mock.Mock(count=0, prepared={}, cards_being_programmed=set())
    worker.changing.return_value = worker.in_flux.return_value = []
    worker.cards_programmed.return_value = set()
    worker.lost.return_value = {}
    made = Inventory(
        conf, 'compute1', [Guard(loaded, 60)], conductor, mock.Mock(), worker, host.sysfs
    )
    monkeypatch.setattr(made, '_publish', lambda: None)
    return made


def lose_the_answer(inventory, conductor):
    conductor.loses_answers = True
    with pytest.raises(messaging.MessagingTimeout):
        inventory.sync()
    conductor.loses_answers = False


def test_a_card_that_is_back_is_reported_although_it_was_reported_before(
    inventory, conductor, host
):
    inventory.sync()
    host.pull_out(ADDRESS)
    lose_the_answer(inventory, conductor)
    host.plug_in(MODEL, at=ADDRESS)
    inventory.sync()
    inventory.sync()
    assert conductor.cards == [1, 0, 1]


def test_a_heartbeat_after_a_lost_answer_claims_nothing(inventory, conductor, host):
    inventory.sync()
    host.pull_out(ADDRESS)
    lose_the_answer(inventory, conductor)
    inventory.beat()
    assert conductor.beats == [NOTHING_REPORTED]


def test_a_report_is_the_first_one_until_one_is_answered(inventory, conductor):
    lose_the_answer(inventory, conductor)
    inventory.sync()
    inventory.wake(must_report=True)
    lose_the_answer(inventory, conductor)
    inventory.sync()
    assert conductor.first == [True, True, False, False]
