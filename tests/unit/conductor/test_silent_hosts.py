# SPDX-License-Identifier: Apache-2.0
"""Devices of silent agents, in a real database and a real Placement."""

import datetime

import pytest
import requests
import sqlalchemy as sa

from cyborg.clients import embedded_placement, keystone, placement, wsgi
from cyborg.conductor import silent_hosts
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.conductor.silent_hosts import SilentHosts
from cyborg.db.sqlalchemy import agents, clock, models
from tests.fixtures.reporting_host import CAUSE, NAME, SERVER, deployable, device, handle

TIMEOUT = 300
URL = 'http://placement.local'
OPTIONS = f'[placement]\nauth_type = admin_token\nendpoint = {URL}/\ntoken = admin\n'


class Service:
    """A Placement that can be switched off."""

    def __init__(self, conf, path):
        self._application = embedded_placement.load(path)
        self.is_away, self.writes = False, 0
        session = requests.Session()
        wsgi.mount(session, URL, self._serve)
        self.adapter = keystone.connect(conf, 'placement', session)

    def _serve(self, environ, start_response):
        self.writes += environ['REQUEST_METHOD'] == 'PUT'
        if self.is_away:
            start_response('503 Service Unavailable', [('Content-Length', '0')])
            return [b'']
        return self._application(environ, start_response)

    def reserved(self):
        """Of all inventories below the compute node: reserved and total, by provider."""
        found = {}
        for row in self._get('/resource_providers')['resource_providers']:
            inventories = self._get(f'/resource_providers/{row["uuid"]}/inventories')
            for each in inventories['inventories'].values():
                found[row['name']] = each['reserved'], each['total']
        return found

    def _get(self, path):
        return self.adapter.get(path, headers={'OpenStack-API-Version': 'placement 1.39'}).json()


@pytest.fixture
def service(configured, tmp_path):
    return Service(configured(OPTIONS), tmp_path / 'placement.db')


def found():
    """The devices of the host, as its agent reports them."""
    return (
        device('card', deployable('plain', 'a', 'b')),
        device('gpu', deployable('vgpu', handle('c', type='MDEV', is_host_prepared=True))),
    )


@pytest.fixture
def published(host, service):
    """A host whose agent has published a plain card and a shared GPU."""
    service.adapter.post(
        '/resource_providers',
        json={'name': NAME},
        headers={'OpenStack-API-Version': 'placement 1.39'},
    )
    plan = host.report(*found())
    placement.Placement(service.adapter).publish(NAME, plan.providers)
    assert service.reserved() == {'plain': (0, 2), 'vgpu': (0, 1)}
    return host


@pytest.fixture
def silent(db, service):
    return SilentHosts(db, placement.Reservations(service.adapter), TIMEOUT)


def hear(db, ago, *hosts):
    """Set the last heartbeat of hosts; a host that is not known gets an agent without devices."""
    moment = clock.now() - datetime.timedelta(seconds=ago)
    with db.writer() as session:
        for each in hosts:
            update = sa.update(models.Agent).where(models.Agent.hostname == each)
            if not models.matched(session.execute(update.values(last_heartbeat=moment))):
                session.add(
                    models.Agent(
                        hostname=each,
                        last_heartbeat=moment,
                        sequence=1,
                        digest='1',
                        is_ready=True,
                        drivers=[],
                        conflicts={},
                    )
                )


def marks(db):
    with db.reader() as session:
        found = sa.select(models.Agent.withdrawal).order_by(models.Agent.hostname)
        return list(session.scalars(found))


def test_only_what_the_agent_must_prepare_is_reserved_and_only_while_it_is_silent(
    db, service, published, silent
):
    hear(db, TIMEOUT - 10, NAME)
    silent.round()
    assert service.reserved() == {'plain': (0, 2), 'vgpu': (0, 1)}
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    assert service.reserved() == {'plain': (0, 2), 'vgpu': (1, 1)}
    assert marks(db) == [agents.RESERVED]
    hear(db, 0, NAME)
    silent.round()
    assert service.reserved() == {'plain': (0, 2), 'vgpu': (0, 1)}
    assert marks(db) == [None]


@pytest.mark.parametrize('is_during_round', [False, True])
def test_a_handle_that_is_released_while_its_agent_is_silent_is_reserved(
    db, service, published, silent, monkeypatch, is_during_round
):
    # given a server with a device that must be cleaned after it
    request = published.request({'resources:FPGA': '1', 'accel:cleaning': 'reset'})
    published.bind(request, provider='plain')
    hear(db, TIMEOUT + 10, NAME)
    reserve = silent._placement.reserve

    def delete_server():
        with transact(db, CAUSE) as unit:
            arqs.delete_of_instance(unit, SERVER)

    def reserve_late(*arguments):
        delete_server()
        return reserve(*arguments)

    # when the server is deleted while the agent of its host is silent
    if is_during_round:
        with monkeypatch.context() as patch:
            patch.setattr(silent._placement, 'reserve', reserve_late)
            silent.round()
    else:
        silent.round()
        delete_server()
    # then no other server is scheduled to the device, until the agent is back
    silent.round()
    assert service.reserved()['plain'] == (1, 2) and marks(db) == [agents.RESERVED]
    published.report(*found())
    silent.round()
    assert service.reserved()['plain'] == (0, 2) and marks(db) == [None]


def test_a_host_that_is_reserved_is_not_written_again(db, service, published, silent):
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    before = service.writes
    silent.round()
    assert service.writes == before


def test_what_an_operator_has_disabled_stays_reserved_when_the_agent_returns(
    db, service, published, silent
):
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    with db.writer() as session:
        agents.set_disabled(session, NAME, 'maintenance')
    hear(db, 0, NAME)
    silent.round()
    assert service.reserved() == {'plain': (2, 2), 'vgpu': (1, 1)}
    assert marks(db) == [None]


def test_a_class_that_only_a_server_still_uses_is_not_offered_when_the_agent_returns(
    db, service, published, silent
):
    # given a card whose resource class was changed while a server used the former one
    [vgpu] = [
        row['uuid']
        for row in service._get('/resource_providers')['resource_providers']
        if row['name'] == 'vgpu'
    ]
    found = service._get(f'/resource_providers/{vgpu}/inventories')
    former = {'CUSTOM_FORMER': {'total': 1, 'reserved': 1}}
    version = {'OpenStack-API-Version': 'placement 1.39'}
    service.adapter.put('/resource_classes/CUSTOM_FORMER', headers=version)
    service.adapter.put(
        f'/resource_providers/{vgpu}/inventories',
        json=found | {'inventories': found['inventories'] | former},
        headers=version,
    )
    # when its agent is silent, and returns
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    hear(db, 0, NAME)
    silent.round()
    # then only the present class is offered again
    inventories = service._get(f'/resource_providers/{vgpu}/inventories')['inventories']
    assert {name: each['reserved'] for name, each in inventories.items()} == dict.fromkeys(
        found['inventories'], 0
    ) | {'CUSTOM_FORMER': 1}


def test_what_an_operator_disables_while_the_agent_is_silent_is_reserved(
    db, service, published, silent
):
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    with db.writer() as session:
        agents.set_disabled(session, NAME, 'maintenance')
    silent.round()
    assert service.reserved() == {'plain': (2, 2), 'vgpu': (1, 1)}


def test_while_placement_is_away_no_mark_says_reserved(db, service, published, silent, caplog):
    hear(db, TIMEOUT + 10, NAME)
    service.is_away = True
    silent.round()
    assert marks(db) == [None]
    service.is_away = False
    silent.round()
    assert service.reserved()['vgpu'] == (1, 1)
    # nor does a reservation end
    hear(db, 0, NAME)
    service.is_away = True
    silent.round()
    assert marks(db) == [agents.RESERVED]


@pytest.mark.parametrize(
    ('others_silent', 'others_alive', 'is_reserved'),
    [
        # few agents, of which any number may really be down
        (0, 0, True),
        (1, 0, True),
        # half of them may be down
        (1, 2, True),
        # most are silent: the broker is at fault
        (2, 0, False),
        (2, 2, False),
    ],
)
def test_nothing_is_reserved_if_most_agents_are_silent(
    db, service, published, silent, others_silent, others_alive, is_reserved
):
    hear(db, TIMEOUT + 10, NAME, *(f'silent{number}' for number in range(others_silent)))
    hear(db, 0, *(f'alive{number}' for number in range(others_alive)))
    silent.round()
    assert service.reserved()['vgpu'] == ((1, 1) if is_reserved else (0, 1))


def test_agents_that_are_reserved_already_do_not_speak_for_a_common_fault(
    db, service, published, silent
):
    # given two of five hosts that are retired
    hear(db, 0, NAME, 'alive1', 'alive2')
    hear(db, TIMEOUT + 10, 'retired1', 'retired2')
    silent.round()
    assert marks(db).count(agents.RESERVED) == 2
    hear(db, TIMEOUT + silent_hosts.FOR_GOOD.total_seconds() + 10, 'retired1', 'retired2')
    # when the agent of another host dies
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    # then its devices are reserved, too
    assert service.reserved()['vgpu'] == (1, 1)


@pytest.mark.parametrize('others', [3, 4])
def test_agents_that_fall_silent_one_after_the_other_have_a_common_fault(
    db, service, published, silent, others
):
    # given a broker that fails, and two agents that are past the limit in this round
    names = [f'other{number}' for number in range(others)]
    hear(db, 0, NAME, *names)
    hear(db, TIMEOUT + 10, *names[:2])
    silent.round()
    assert marks(db).count(agents.RESERVED) == 2
    # when the next ones are, in later rounds
    for count in range(3, others + 1):
        hear(db, TIMEOUT + 10, *names[:count])
        silent.round()
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    # then it is known for what it is
    assert marks(db).count(agents.RESERVED) == 2
    assert service.reserved()['vgpu'] == (0, 1)


def test_agents_that_return_are_served_although_most_others_are_silent(
    db, service, published, silent
):
    hear(db, TIMEOUT + 10, NAME)
    silent.round()
    hear(db, TIMEOUT + 10, 'silent1', 'silent2')
    hear(db, 0, NAME)
    silent.round()
    assert service.reserved()['vgpu'] == (0, 1)
    assert marks(db) == [None, None, None]


def test_a_round_takes_a_limited_number_of_hosts_and_the_next_the_others(
    db, service, silent, monkeypatch
):
    monkeypatch.setattr(silent_hosts, 'AT_A_TIME', 2)
    hear(db, TIMEOUT + 10, 'compute1', 'compute2', 'compute3')
    hear(db, 0, 'compute4', 'compute5', 'compute6')
    silent.round()
    assert marks(db) == [agents.RESERVED, agents.RESERVED, None, None, None, None]
    silent.round()
    assert marks(db) == [agents.RESERVED] * 3 + [None] * 3
