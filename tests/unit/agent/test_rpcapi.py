# SPDX-License-Identifier: Apache-2.0
"""Messages of conductors to agents, over an in-process broker."""

import queue

import oslo_messaging as messaging
import pytest

from cyborg import context, errors, objects, rpc
from cyborg.agent.rpcapi import AgentAPI
from cyborg.cmd import startup
from cyborg.objects import manifests

PATIENCE = 60
HOSTS = 'compute1', 'compute2'
TASK = objects.Task(
    uuid='11111111-1111-4111-8111-111111111111',
    kind='prepare',
    generation=1,
    driver_name='driver',
    device_key='card',
    deployable_name='part',
    deployable_uuid='22222222-2222-4222-8222-222222222222',
    handle=objects.AttachHandle(key='a', type='PCI', info={'slot': '00.0'}),
)


class Endpoint:
    """Receives what an agent of some version receives."""

    def __init__(self, version):
        self.target = messaging.Target(version=version)
        self.heard = queue.SimpleQueue()

    def perform(self, context, tasks):
        self.heard.put(tasks)

    def wake(self, context):
        self.heard.put(context.global_id)


@pytest.fixture
def transport(tmp_path):
    """Connects a process whose configuration file has this text."""
    made = []

    def connect(text=''):
        file = tmp_path / 'cyborg.conf'
        file.write_text(f'[DEFAULT]\ntransport_url = kombu+memory:////\n{text}\n')
        conf = startup.configure(['--config-file', str(file)], default_config_files=[])
        made.append(rpc.transport(conf))
        return made[-1]

    startup.CONF.reset()
    yield connect
    for each in made:
        each.cleanup()
    startup.CONF.reset()


@pytest.fixture
def hosts(transport):
    """A client, and the agents of two hosts, of the oldest release that we talk to."""
    connected = transport()
    endpoints = {host: Endpoint(manifests.OLDEST) for host in HOSTS}
    servers = [
        rpc.Server(connected, rpc.AGENT, host, [endpoint]) for host, endpoint in endpoints.items()
    ]
    for each in servers:
        each.start()
    yield AgentAPI(connected, lowest=lambda: manifests.OLDEST), endpoints
    for each in servers:
        each.stop()
        each.wait()


def test_messages_go_to_their_host_alone_in_a_version_that_old_agents_read(hosts):
    api, endpoints = hosts
    api.perform(context.internal(), 'compute2', [TASK])
    api.wake(context.internal('req-1'), 'compute1')
    [task] = endpoints['compute2'].heard.get(timeout=PATIENCE)
    assert (task.uuid, task.kind, task.handle.info) == (TASK.uuid, 'prepare', {'slot': '00.0'})
    # the first that the other host hears
    assert endpoints['compute1'].heard.get(timeout=PATIENCE) == 'req-1'


def test_a_host_without_an_agent_delays_nobody(transport):
    AgentAPI(transport()).perform(context.internal(), 'nowhere', [TASK])


@pytest.fixture
def sent(monkeypatch):
    """The version of each message that a transport sends."""
    versions = []

    def watch(transport):
        monkeypatch.setattr(
            transport._driver,
            'send',
            lambda target, context, message, **options: versions.append(message['version']),
        )
        return transport

    return watch, versions


def test_messages_have_the_version_that_all_agents_read_at_that_moment(transport, sent):
    watch, versions = sent
    lowest = [manifests.OLDEST]
    api = AgentAPI(watch(transport()), lowest=lambda: lowest[0])
    api.perform(context.internal(), 'compute1', [TASK])
    lowest[0] = manifests.NEWEST
    api.perform(context.internal(), 'compute1', [TASK])
    assert versions == [manifests.OLDEST, manifests.NEWEST]


def test_the_configuration_overrides_what_agents_report(transport, sent):
    watch, versions = sent
    pinned = watch(transport(f'[upgrade_levels]\nagent = {manifests.OLDEST}'))
    AgentAPI(pinned, lowest=lambda: manifests.NEWEST).perform(
        context.internal(), 'compute1', [TASK]
    )
    assert versions == [manifests.OLDEST]


def test_a_version_that_does_not_exist_is_refused_at_the_start(transport):
    with pytest.raises(errors.ConfigError, match=r'\[upgrade_levels\] agent = 9.9'):
        AgentAPI(transport('[upgrade_levels]\nagent = 9.9'))
