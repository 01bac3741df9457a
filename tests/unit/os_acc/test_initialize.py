# SPDX-License-Identifier: Apache-2.0
"""os_acc.initialize(): the agent is ready, or the caller learns why not."""

import socket
import subprocess
import sys
import time
from concurrent import futures

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

import os_acc
from os_acc import client, hosts, polling
from os_acc import conf as options

UNPUBLISHED = 'Not all its devices are published.'
INSTANCE = {'uuid': '5a0c2a3e-7d6c-4ad8-9d3d-0f4d8b0d6c11', 'name': 'vm1'}


@pytest.fixture
def global_conf():
    """cfg.CONF, which nova-compute's file fills."""
    options.register_opts(cfg.CONF)
    yield cfg.CONF
    for opt in options.OPTS:
        cfg.CONF.clear_override(opt.name, 'os_acc')


@pytest.fixture
def living_broker(global_conf):
    """The in-process one, which the library finds in its configuration."""
    global_conf.set_override('transport_url', 'kombu+memory:////', 'os_acc')
    yield
    os_acc._link.agent._rpc.transport.cleanup()


@pytest.fixture
def dead_broker(global_conf):
    """One that nobody answers for, nor will."""
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        url = f'rabbit://nova:s3cret@127.0.0.1:{taken.getsockname()[1]}/'
        global_conf.set_override('transport_url', url, 'os_acc')
        yield
        # its log message must not outlive the test
        os_acc._link.agent._connecting.join(60)


class Clock:
    """Passes only when somebody sleeps, however long the machine takes for all else."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def unhurried(monkeypatch):
    """Every question but the last has time for its answer."""
    clock = Clock()
    for module in (client, polling):
        monkeypatch.setattr(module, 'time', clock)
    monkeypatch.setattr(client, 'PROBE_TIMEOUT', 60)
    monkeypatch.setattr(client, 'PROBE_INTERVAL', 60)


def test_no_agent_at_all_is_unavailable(host):
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='did not answer obstacle') as caught:
        host.initialize(timeout=3)
    assert caught.value.host == host.name


@pytest.mark.usefixtures('unhurried')
def test_an_agent_that_never_gets_ready_is_unavailable(host):
    host.agent.readiness = [UNPUBLISHED]
    host.start_agent()
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='Not all its devices are published'):
        host.initialize(timeout=60)


@pytest.mark.usefixtures('unhurried')
def test_an_agent_that_does_not_serve_the_library_is_unavailable(host):
    host.start_agent(endpoint=object())
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='UnsupportedVersion'):
        host.initialize(timeout=60)


@pytest.mark.usefixtures('unhurried')
def test_what_an_agent_said_counts_more_than_that_it_said_nothing_at_last(host, monkeypatch):
    host.agent.readiness = [UNPUBLISHED]
    host.start_agent()
    sleep = client.time.sleep
    monkeypatch.setattr(client.time, 'sleep', lambda seconds: (host.stop_agent(), sleep(seconds)))
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='Not all its devices are published'):
        host.initialize(timeout=60)


def test_an_agent_whose_readiness_fails_is_asked_again(host):
    host.agent.readiness = [UNPUBLISHED, RuntimeError('Placement is away'), UNPUBLISHED, None]
    host.start_agent()
    assert host.initialize() is None
    assert host.agent.readiness == [None]


def test_an_agent_that_starts_later_is_found(host):
    with futures.ThreadPoolExecutor(max_workers=1) as executor:
        # given an initialize() whose first question is lost
        waiting = executor.submit(host.initialize)
        while not (os_acc._link and os_acc._link.agent._is_connected):
            time.sleep(0.01)
        # when the agent starts
        host.start_agent()
        # then it is found
        assert waiting.result() is None


def test_no_time_at_all_still_asks_once(ready, monkeypatch):
    monkeypatch.setattr(client, 'LEAST_TIMEOUT', 60)
    ready.initialize(timeout=0)


@pytest.mark.usefixtures('dead_broker')
def test_a_dead_broker_is_unavailable_and_holds_nobody(global_conf):
    global_conf.set_override('call_timeout', 1, 'os_acc')
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='message broker does not answer'):
        os_acc.initialize(timeout=0.3)
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='message broker does not answer'):
        os_acc.unplug(INSTANCE)


@pytest.mark.usefixtures('dead_broker')
def test_no_thread_waits_for_a_dead_broker_after_the_caller_has_given_up():
    with pytest.raises(os_acc.CyborgAgentUnavailable):
        os_acc.initialize(timeout=0.3)
    connecting = os_acc._link.agent._connecting
    connecting.join(60)
    assert not connecting.is_alive()


def test_a_broker_that_answers_while_the_caller_waits_is_found(host, monkeypatch):
    # given a broker that does not answer at first
    refusals = ['refused', 'refused']
    send = host.transport._send

    def send_or_fail(*arguments, **options):
        if refusals:
            raise messaging.MessageDeliveryFailure(refusals.pop())
        return send(*arguments, **options)

    monkeypatch.setattr(host.transport, '_send', send_or_fail)
    host.start_agent()
    # when nova-compute starts, then one call is enough
    agent = client.Agent(host.transport, host.name, host.conf.os_acc.exchange)
    assert agent.call('is_ready', 60) is True


@pytest.mark.parametrize('url', ['nonsense://nova:s3cret@broker/', 'rabbit://nova:s3cret@b:x/'])
def test_an_unusable_url_is_unavailable_and_its_password_stays_secret(global_conf, url):
    global_conf.set_override('transport_url', url, 'os_acc')
    with pytest.raises(os_acc.CyborgAgentUnavailable) as caught:
        os_acc.initialize(timeout=0.3)
    assert 's3cret' not in str(caught.value)


def test_after_a_failed_initialize_the_library_works_once_the_agent_does(host):
    with pytest.raises(os_acc.CyborgAgentUnavailable):
        host.initialize(timeout=0.1)
    host.start_agent()
    assert os_acc.unplug(INSTANCE) == 0


def test_initializing_again_keeps_the_connection(ready):
    agent = os_acc._link.agent
    ready.initialize()
    assert os_acc._link.agent is agent


def test_initializing_for_another_host_talks_to_that_one(ready):
    with pytest.raises(os_acc.CyborgAgentUnavailable, match='compute2.example.org'):
        os_acc.initialize(
            ready.conf, host='compute2.example.org', transport=ready.transport, timeout=0.1
        )


def test_many_threads_may_initialize_at_once(served_host):
    def initialize(_):
        served_host.initialize()
        return os_acc._link.agent

    with futures.ThreadPoolExecutor(max_workers=8) as executor:
        assert len(set(executor.map(initialize, range(8)))) == 1


@pytest.mark.usefixtures('living_broker')
def test_without_arguments_it_follows_the_configuration_file(host, global_conf):
    host.start_agent()
    global_conf.set_override('host', host.name, 'os_acc')
    os_acc.initialize()
    assert os_acc.unplug(INSTANCE) == 0


@pytest.mark.usefixtures('living_broker')
def test_the_host_is_the_one_that_nova_knows_unless_configured(host):
    host.name = hosts.node_name()
    host.start_agent()
    os_acc.initialize()
    assert os_acc._link.agent.host == host.name


def test_options_are_listed_for_the_sample_file():
    [(group, opts)] = options.list_opts()
    assert group.name == 'os_acc'
    assert {opt.name for opt in opts} == {
        'transport_url',
        'host',
        'exchange',
        'ready_timeout',
        'call_timeout',
        'weight_multiplier',
    }


def test_importing_the_library_imports_nothing_of_cyborg():
    script = 'import os_acc, sys; print(*(n for n in sys.modules if n.split(".")[0] == "cyborg"))'
    run = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', script], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []


def test_beside_oslo_messaging_importing_the_library_costs_its_own_modules_only():
    """nova-compute has oslo.config and oslo.messaging already."""
    script = (
        'import sys, oslo_messaging, oslo_config.cfg; before = set(sys.modules); '
        'import os_acc; print(*(sys.modules.keys() - before))'
    )
    run = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', script], capture_output=True, text=True, check=True
    )
    assert {name.split('.')[0] for name in run.stdout.split()} == {'os_acc'}
