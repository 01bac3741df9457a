# SPDX-License-Identifier: Apache-2.0
"""A fleet says what agents say, and does what they do: conductors cannot tell."""

import collections

import pytest
import sqlalchemy as sa

from cyborg import context
from cyborg.conductor import service
from cyborg.db.sqlalchemy import agents, models
from tests.fixtures.cloud import Cloud, eventually
from tools.fleet import churn, process
from tools.fleet.host import DRIVER, HANDLES, FleetHost

NAMES = ('sim0', 'sim1', 'sim2')
DEVICES = 2


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def start(cloud, tmp_path):
    """Have a fleet whose hosts make a round so often."""
    started = []

    def start(**options):
        order = process.Assignment(
            config_files=(), names=NAMES, devices=DEVICES, **({'period': 0.2} | options)
        )
        (tmp_path / 'fleet').mkdir()
        made = process.FleetProcess(cloud.standalone.conf, order, tmp_path / 'fleet')
        made.counted = collections.Counter()
        made.start()
        started.append(made)
        return made

    yield start
    for each in started:
        each.stop()


def counts(fleet):
    """All that was counted since the fleet began."""
    fleet.counted.update(fleet.statistics.take()['counts'])
    return fleet.counted


def rows(cloud, model, **where):
    with cloud.standalone.db.reader() as session:
        return session.scalars(sa.select(model).filter_by(**where)).all()


def test_hosts_report_and_then_only_live(cloud, start):
    fleet = start()
    eventually(
        lambda: counts(fleet)['sent'] > 2 * len(NAMES) and counts(fleet)['looks'] >= 2 * len(NAMES)
    )
    found = fleet.conductor.list_agents(context.internal(), {}, {})
    assert {each.hostname for each in found} == set(NAMES)
    assert all(each.is_alive and each.is_ready for each in found)
    assert len(cloud.get('/devices')['devices']) == len(NAMES) * DEVICES
    assert len(rows(cloud, models.AttachHandle)) == len(NAMES) * DEVICES * HANDLES
    # and each has reported twice: when it came, and when it was published
    assert counts(fleet)['looks'] == 2 * len(NAMES)
    assert not counts(fleet)['failed']


def test_what_is_taken_as_known_is_what_reports_leave(cloud, start):
    fleet = start()
    eventually(lambda: counts(fleet)['looks'] == 2 * len(NAMES))
    for name, host in fleet.hosts.items():
        fresh = FleetHost(cloud.standalone.conf, name, DEVICES, None, None, host._sysfs)
        [agent] = rows(cloud, models.Agent, hostname=name)
        assert fresh.assume_reported() == agent.digest
        assert agent.drivers[0]['name'] == DRIVER


def test_a_conductor_that_does_not_know_them_is_told(cloud, start):
    fleet = start(known=True)
    eventually(lambda: len(rows(cloud, models.Agent)) == len(NAMES))
    eventually(lambda: len(rows(cloud, models.Device)) == len(NAMES) * DEVICES)
    assert counts(fleet)['sent'] >= len(NAMES)


def test_a_bind_is_prepared_by_its_host(cloud, start):
    fleet = start()
    eventually(lambda: counts(fleet)['looks'] == 2 * len(NAMES))
    churn.BindRequests(fleet).perform()
    assert counts(fleet)['binds'] == 1
    assert sum(host.worker.count for host in fleet.hosts.values()) > 0
    assert cloud.arqs() == []
    # and all is cleaned up after it
    eventually(lambda: not [each for each in rows(cloud, models.AttachHandle) if each.withheld])


def test_cards_come_and_go(cloud, start):
    fleet = start()
    eventually(lambda: counts(fleet)['looks'] == 2 * len(NAMES))
    churn.CardChanges(fleet).perform()
    eventually(lambda: len(rows(cloud, models.Device)) == len(NAMES) * DEVICES + 1)
    assert counts(fleet)['cards'] == 1


def test_a_question_tells_whether_heartbeats_arrive(cloud, start, monkeypatch):
    # a busy machine delays heartbeats by more than clocks differ
    monkeypatch.setattr(process, 'CLOCK_SKEW', 60)
    fleet = start()
    eventually(lambda: counts(fleet)['asked'])
    assert counts(fleet)['behind'] == 0
    # when heartbeats are sent that no conductor notes
    monkeypatch.setattr(agents, 'beat', lambda *arguments: True)
    monkeypatch.setattr(process, 'CLOCK_SKEW', 0)
    eventually(lambda: counts(fleet)['behind'])


def test_a_conductor_has_no_more_threads_than_connections_to_keep(cloud):
    conf, engine = cloud.standalone.conf, cloud.standalone.db.engine
    kept = conf.database.max_pool_size
    agents = service.HEARTBEAT_THREADS + service.REPORT_THREADS
    assert conf.executor_thread_pool_size + agents <= kept
    assert engine.dialect.name == 'sqlite' or engine.pool.size() == kept
