# SPDX-License-Identifier: Apache-2.0
"""The broker drops heartbeats that no conductor takes."""

import contextlib
import time

import pytest

from cyborg import context, rpc
from cyborg.cmd import startup
from cyborg.conductor import rpcapi
from cyborg.conductor.endpoint import Endpoint
from tests.fixtures.cloud import eventually


class Listener:
    """Notes whose heartbeats arrive."""

    target = Endpoint.target

    def __init__(self):
        self.heard = []

    def heartbeat(self, context, hostname, digest):
        self.heard.append(hostname)


@pytest.fixture
def transport(tmp_path, broker):
    options = tmp_path / 'cyborg.conf'
    options.write_text(
        f'[DEFAULT]\ntransport_url = {broker.url}\ncontrol_exchange = {tmp_path.name}\n'
    )
    startup.CONF.reset()
    made = rpc.transport(
        startup.configure(['--config-file', str(options)], default_config_files=[])
    )
    yield made
    made.cleanup()
    startup.CONF.reset()


@contextlib.contextmanager
def listening(transport):
    listener = Listener()
    server = rpc.Server(transport, rpc.HEARTBEATS, 'conductor1', [listener])
    server.start()
    try:
        yield listener
    finally:
        server.stop()
        server.wait()


def test_a_conductor_that_was_away_hears_no_stale_heartbeats(transport, monkeypatch):
    monkeypatch.setattr(rpcapi, 'HEARTBEAT_EXPIRY', 1)
    conductor = rpcapi.ConductorAPI(transport)
    # given a queue in which heartbeats have waited for too long
    with listening(transport):
        pass
    for number in range(100):
        conductor.heartbeat(context.internal(), f'stale{number}', 'digest')
    time.sleep(2)

    # when a conductor comes
    def heard():
        conductor.heartbeat(context.internal(), 'fresh', 'digest')
        time.sleep(0.2)
        return listener.heard

    with listening(transport) as listener:
        found = eventually(heard)
    # then it hears those that are sent now
    assert set(found) == {'fresh'}
