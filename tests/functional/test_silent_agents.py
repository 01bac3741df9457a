# SPDX-License-Identifier: Apache-2.0
"""A dead agent on a living compute host: what only it can prepare is not offered any more."""

import datetime

import pytest
import sqlalchemy as sa

from cyborg import errors
from cyborg.conductor.silent_hosts import SilentHosts
from cyborg.db.sqlalchemy import agents, clock, models
from tests.fixtures.cloud import Cloud, eventually
from tests.functional.test_engine import VGPU_SETTINGS, GpuHost

CARD = '0000:3b:00.0'
SILENCE = 300


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    """compute1 has a shared GPU, and its agent says nothing by itself; compute2 a plain card."""
    made = Cloud(
        tmp_path_factory.mktemp('cloud'),
        more=f'{VGPU_SETTINGS}[conductor]\nsweep_interval = 3600\n'
        '[agent]\nresync_interval = 3600\n',
    )
    made.start()
    made.host('compute1', GpuHost, cards=[CARD])
    made.host('compute2')
    made.rest('compute1')
    made.rest('compute2')
    yield made
    made.stop()


@pytest.fixture
def silent_hosts(cloud):
    made = cloud.standalone.conductors[0].sweep.silent_hosts
    yield made
    set_heartbeat(cloud, 'compute1', 'compute2')
    made.round()


def set_heartbeat(cloud, *hosts, ago=0):
    moment = clock.now() - datetime.timedelta(seconds=ago)
    with cloud.standalone.db.writer() as session:
        session.execute(
            sa.update(models.Agent)
            .where(models.Agent.hostname.in_(hosts))
            .values(last_heartbeat=moment)
        )


def withdrawal(cloud, host='compute1'):
    with cloud.standalone.db.reader() as session:
        return session.scalar(
            sa.select(models.Agent.withdrawal).where(models.Agent.hostname == host)
        )


def reserved(cloud, host='compute1'):
    """Of the inventories of a host: how much there is, and how much of it is reserved."""
    return [
        (each['total'], each['reserved'])
        for provider in cloud.providers(host).values()
        for each in provider['inventories'].values()
    ]


def test_what_a_silent_agent_prepares_is_reserved_and_given_back(cloud, silent_hosts):
    [(total, before)] = reserved(cloud)
    assert total and not before
    # given an agent that was heard in time
    set_heartbeat(cloud, 'compute1', ago=SILENCE - 10)
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)]
    # when it is silent for too long
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    silent_hosts.round()
    assert reserved(cloud) == [(total, total)]
    # then that stays
    silent_hosts.round()
    assert reserved(cloud) == [(total, total)]
    # until it is heard again
    set_heartbeat(cloud, 'compute1')
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)]
    assert withdrawal(cloud) is None


def test_what_needs_no_preparation_stays_on_offer(cloud, silent_hosts):
    before = reserved(cloud, 'compute2')
    set_heartbeat(cloud, 'compute2', ago=SILENCE + 10)
    silent_hosts.round()
    assert reserved(cloud, 'compute2') == before
    assert withdrawal(cloud, 'compute2') == agents.RESERVED


def test_a_device_that_waits_to_be_cleaned_is_reserved(cloud, silent_hosts):
    [(total, _)] = reserved(cloud, 'compute2')
    withhold_one(cloud, 'compute2')
    set_heartbeat(cloud, 'compute2', ago=SILENCE + 10)
    silent_hosts.round()
    assert reserved(cloud, 'compute2') == [(total, 1)]
    # until it is clean
    with cloud.standalone.db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(withheld=None))
    set_heartbeat(cloud, 'compute2')
    silent_hosts.round()
    assert reserved(cloud, 'compute2') == [(total, 0)]


def withhold_one(cloud, host):
    """A handle of a host waits to be cleaned."""
    with cloud.standalone.db.writer() as session:
        handle = session.scalar(
            sa.select(models.AttachHandle.id)
            .join(models.AttachHandle.deployable)
            .join(models.Deployable.device)
            .where(models.Device.hostname == host)
            .limit(1)
        )
        session.execute(
            sa.update(models.AttachHandle)
            .where(models.AttachHandle.id == handle)
            .values(withheld='cleaning')
        )


def test_a_device_that_is_to_be_cleaned_while_the_agent_is_silent_is_reserved(cloud, silent_hosts):
    [(total, _)] = reserved(cloud, 'compute2')
    # given a silent agent of which nothing had to be reserved
    set_heartbeat(cloud, 'compute2', ago=SILENCE + 10)
    silent_hosts.round()
    assert reserved(cloud, 'compute2') == [(total, 0)]
    # when a server there is deleted, and its device waits for the agent
    withhold_one(cloud, 'compute2')
    silent_hosts.round()
    # then no other server is scheduled to that device
    assert reserved(cloud, 'compute2') == [(total, 1)]
    # until the agent has cleaned it
    with cloud.standalone.db.writer() as session:
        session.execute(sa.update(models.AttachHandle).values(withheld=None))
    set_heartbeat(cloud, 'compute2')
    silent_hosts.round()
    assert reserved(cloud, 'compute2') == [(total, 0)] and withdrawal(cloud, 'compute2') is None


def test_what_an_agent_without_a_broker_offers_is_reserved_again(cloud, silent_hosts, monkeypatch):
    """The agent reaches Placement, but no heartbeat of it arrives."""
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    silent_hosts.round()
    # when it compares its providers with Placement, as it does from time to time
    inventory = cloud.agent().inventory
    monkeypatch.setattr(inventory, '_compared_at', float('-inf'))
    inventory.wake()
    eventually(lambda: reserved(cloud) == [(total, 0)])
    # then its devices are reserved again
    silent_hosts.round()
    assert reserved(cloud) == [(total, total)] and withdrawal(cloud) == agents.RESERVED


def test_an_agent_that_starts_again_publishes_at_once(cloud, silent_hosts):
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    silent_hosts.round()
    # when its first report comes, before any conductor looks
    cloud.agent().inventory._placement.__init__(cloud.standalone.placement)  # as a new process
    cloud.agent().inventory._digest = None
    cloud.agent().inventory.wake()
    eventually(lambda: reserved(cloud) == [(total, 0)])
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)] and withdrawal(cloud) is None


def test_an_agent_that_was_only_disconnected_gets_its_devices_back(cloud, silent_hosts):
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    silent_hosts.round()
    # when a heartbeat arrives again
    cloud.agent().inventory.beat()
    eventually(lambda: is_alive(cloud))
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)] and withdrawal(cloud) is None


def test_an_agent_that_has_not_reported_since_it_started_gets_nothing_back(
    cloud, silent_hosts, monkeypatch
):
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    silent_hosts.round()
    inventory = cloud.agent().inventory

    def fail(*arguments):
        raise errors.Unavailable('it is away')

    with monkeypatch.context() as patch:
        # given an agent that was restarted, and cannot report
        patch.setattr(inventory._conductor, 'report', fail)
        inventory._digest = None
        # when it sends heartbeats
        inventory.beat()
        eventually(lambda: is_alive(cloud))
        silent_hosts.round()
        # then no server is scheduled to cards that may be gone
        assert reserved(cloud) == [(total, total)] and withdrawal(cloud) == agents.RESERVED
    # until it reports
    inventory.wake()
    eventually(lambda: reserved(cloud) == [(total, 0)])
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)] and withdrawal(cloud) is None


def is_alive(cloud):
    return cloud.get('/agents/compute1')['alive']


def test_a_reservation_that_comes_too_late_does_nothing(cloud, silent_hosts, monkeypatch):
    """A conductor decides to reserve and stops; the agent returns, another conductor ends the
    reservation; then the first one goes on."""
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    placement = silent_hosts._placement
    reserve = placement.reserve

    def stop_first(uuid, seen, amount):
        monkeypatch.setattr(placement, 'reserve', reserve)
        set_heartbeat(cloud, 'compute1')
        SilentHosts(cloud.standalone.db, placement, SILENCE).round()
        assert withdrawal(cloud) is None
        return reserve(uuid, seen, amount)

    monkeypatch.setattr(placement, 'reserve', stop_first)
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)]


def test_an_agent_that_returns_in_between_loses_nothing(cloud, silent_hosts, monkeypatch):
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)
    read = silent_hosts._placement.read

    def return_meanwhile(uuids):
        set_heartbeat(cloud, 'compute1')
        return read(uuids)

    monkeypatch.setattr(silent_hosts._placement, 'read', return_meanwhile)
    silent_hosts.round()
    assert reserved(cloud) == [(total, 0)] and withdrawal(cloud) is None


def test_while_placement_is_away_it_is_tried_again(cloud, silent_hosts, monkeypatch):
    [(total, _)] = reserved(cloud)
    set_heartbeat(cloud, 'compute1', ago=SILENCE + 10)

    def fail(*arguments):
        raise errors.PlacementUnavailable(why='it is away')

    with monkeypatch.context() as patch:
        patch.setattr(silent_hosts._placement._api, 'set_inventories', fail)
        silent_hosts.round()
    assert withdrawal(cloud) == agents.RESERVING
    silent_hosts.round()
    assert reserved(cloud) == [(total, total)] and withdrawal(cloud) == agents.RESERVED


def test_a_fault_of_the_broker_reserves_nothing(cloud, silent_hosts):
    before = reserved(cloud)
    cloud.host('compute3')
    cloud.rest('compute3')
    set_heartbeat(cloud, 'compute1', 'compute2', ago=SILENCE + 10)
    silent_hosts.round()
    assert reserved(cloud) == before
