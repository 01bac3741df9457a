# SPDX-License-Identifier: Apache-2.0
"""A compute host with the agent's side of the wire, on an in-process broker."""

import contextlib
import itertools
import uuid
import warnings

import pytest
from oslo_config import cfg

with warnings.catch_warnings():
    # What others deprecate among themselves as they load is not ours to mend.
    warnings.simplefilter('ignore')
    from oslo_service import backend

    # nova-compute makes this choice for the library, before oslo.messaging loads.
    backend.init_backend(backend.BackendType.THREADING)
    import oslo_messaging as messaging

    import os_acc
    from os_acc import client
    from os_acc import conf as options

BROKER = 'kombu+memory:////'


class AgentSide:
    """What an agent serves to os_acc; keeps books of what it heard and gave."""

    target = messaging.Target(namespace='os_acc', version='1.2')

    def __init__(self):
        self.forget()

    def forget(self):
        self.readiness = [None]  #: obstacles or errors in turn; the last one stays
        self.failure = None  #: what plug and unplug raise
        self.pending = 0  #: how often plug answers that it is not done yet
        self.failures = []  #: what the first plugs and unplugs raise, each once
        self.heard = []
        self.repeats = []  #: whether each plug was said to be asked again
        self.given = {}
        self.numbers = itertools.count()

    def is_ready(self, ctxt):
        return not self.readiness[0]

    def obstacle(self, ctxt):
        answer = self.readiness.pop(0) if len(self.readiness) > 1 else self.readiness[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def plug(self, ctxt, instance_info, selected_rp, flavor_extra_specs, wait=True, again=False):
        self.repeats.append(again)
        self._hear(instance_info, selected_rp, flavor_extra_specs)
        assert not wait, 'the library waits itself'
        if self.pending:
            self.pending -= 1
            return None
        attachment = {
            'pci_id': f'0000:3b:{next(self.numbers):02x}.4',
            'arq_uuid': str(uuid.uuid4()),
        }
        return self.given.setdefault(instance_info['uuid'], [attachment])

    def unplug(self, ctxt, instance_info):
        self._hear(instance_info)
        return len(self.given.pop(instance_info['uuid'], []))

    def _hear(self, *question):
        self.heard.append(question)
        if self.failures:
            raise self.failures.pop(0)
        if self.failure:
            raise self.failure


class Host:
    """A compute host: the library's settings and, once started, an agent."""

    def __init__(self):
        # A name of its own: the broker outlives a test, and its queues are named after hosts.
        self.name = f'compute-{uuid.uuid4()}.example.org'
        self.agent = AgentSide()
        self.conf = cfg.ConfigOpts()
        options.register_opts(self.conf)
        self.transport = messaging.get_rpc_transport(cfg.CONF, url=BROKER)
        self._running = contextlib.ExitStack()

    def set(self, option, value):
        self.conf.set_override(option, value, 'os_acc')

    def start_agent(self, endpoint=None):
        target = messaging.Target(
            exchange=self.conf.os_acc.exchange,
            topic=f'{self.conf.os_acc.exchange}-agent',
            server=self.name,
        )
        server = messaging.get_rpc_server(self.transport, target, [endpoint or self.agent])
        server.start()
        self._running.callback(server.wait)
        self._running.callback(server.stop)

    def stop_agent(self):
        self._running.close()

    def initialize(self, timeout=120.0):
        os_acc.initialize(self.conf, host=self.name, transport=self.transport, timeout=timeout)

    def close(self):
        self.stop_agent()
        self.transport.cleanup()


@pytest.fixture(autouse=True)
def _new_process(monkeypatch):
    """The library as a process finds it, with less patience between its questions."""
    monkeypatch.setattr(os_acc, '_link', None)
    monkeypatch.setattr(client, 'PROBE_TIMEOUT', 1.0)
    monkeypatch.setattr(client, 'PROBE_INTERVAL', 0.01)
    monkeypatch.setattr(client, 'GREETING_TIMEOUT', 0.2)


@pytest.fixture
def host():
    """A host whose agent does not run."""
    host = Host()
    yield host
    host.close()


@pytest.fixture(scope='module')
def served_host():
    """A host whose agent runs. One for many tests: a listener takes a second to stop."""
    host = Host()
    host.start_agent()
    yield host
    host.close()


@pytest.fixture
def ready(served_host):
    """A host whose agent runs and has forgotten earlier tests, after initialize()."""
    served_host.agent.forget()
    served_host.initialize()
    return served_host
