# SPDX-License-Identifier: Apache-2.0
"""All in one process: API, conductor and agents, composed of the parts that run apart elsewhere.

Nothing here has a code path of its own: an SQLite file, messages in memory and Placement's WSGI
application take the places of servers, by configuration alone.
"""

import pathlib
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import requests
from oslo_config import cfg

from cyborg import rpc
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.hotplug import Monitor, OnEvent
from cyborg.agent.service import Agent
from cyborg.api import app
from cyborg.clients import embedded_placement, keystone, wsgi
from cyborg.clients.glance import Glance
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Placement
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.conductor.service import Conductor
from cyborg.db.sqlalchemy import engine, migration

PLACEMENT = 'http://placement.local'
#: oslo.messaging calls messages in memory an experiment; here they are what we want
LOG_LEVELS = ('oslo.messaging._drivers.impl_rabbit=ERROR,kombu=ERROR,amqp=WARNING,'
              'alembic=WARNING,placement=WARNING,keystoneauth=WARNING,urllib3=WARNING,stevedore=WARNING')
CONFIGURATION = """\
[DEFAULT]
transport_url = {transport}
control_exchange = {exchange}
state_path = {directory}
default_log_levels = {levels}
[database]
connection = {database}
[api]
auth_strategy = noauth2
port = {port}
[placement]
auth_type = admin_token
endpoint = {placement}
token = {token}
[nova]
auth_type = none
endpoint = {nova}
{glance}[os_acc]
exchange = {exchange}
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 0
"""
GLANCE = """\
[glance]
auth_type = none
endpoint = {url}
"""


class Host(Protocol):
    """A compute host: its name, what it shows in sysfs, its events, its drivers."""

    name: str
    sysfs: Sysfs
    drivers: Sequence[str]

    def monitor(self, on_event: OnEvent) -> Monitor: ...


def write_configuration(
        directory: pathlib.Path, nova: str, port: int = 6666, database: str | None = None,
        glance: str | None = None,
        transport: str = 'kombu+memory://localhost//', more: str = '') -> pathlib.Path:
    """A configuration file for a Standalone whose data live in this directory."""
    path = directory / 'cyborg.conf'
    # a name of its own, so that two of us never hear one another's messages
    exchange = f'cyborg-{uuid.uuid4()}'
    path.write_text(CONFIGURATION.format(
        transport=transport, exchange=exchange, directory=directory, port=port, nova=nova,
        levels=LOG_LEVELS, placement=PLACEMENT, token=embedded_placement.TOKEN,
        glance=GLANCE.format(url=glance) if glance else '',
        database=database or f'sqlite:///{directory}/cyborg.db') + more)
    return path


class Standalone:
    """A whole Cyborg; ``conductors`` and hosts may be several."""

    def __init__(self, conf: cfg.ConfigOpts, directory: pathlib.Path,
                 conductors: int = 1) -> None:
        self.conf = conf
        session = requests.Session()
        wsgi.mount(session, PLACEMENT, embedded_placement.load(directory / 'placement.db'))
        self.placement = keystone.connect(conf, 'placement', session)
        self.db = engine.Database(conf.database.connection)
        migration.upgrade(self.db)
        self.transport = rpc.transport(conf)
        self.conductors = [
            Conductor(conf, self.transport, self.db, Nova(keystone.connect(conf, 'nova')),
                      f'conductor-{number}') for number in range(conductors)]
        self.agents: dict[str, Agent] = {}
        self.api: Any = app.load_app(conf, ConductorAPI(self.transport))

    def start(self) -> None:
        for conductor in self.conductors:
            conductor.start()

    def add_host(self, host: Host) -> Agent:
        """Start the agent of a host."""
        agent = Agent(self.conf, self.transport, host.name, Placement(self.placement),
                      Glance.connect(self.conf), host.sysfs, host.monitor, list(host.drivers))
        self.agents[host.name] = agent
        agent.start()
        return agent

    def remove_host(self, name: str) -> None:
        """Stop the agent of a host."""
        self.agents.pop(name).stop()

    def stop(self) -> None:
        """End everything, in an order in which nobody waits for one who is gone."""
        for name in list(self.agents):
            self.remove_host(name)
        for conductor in self.conductors:
            conductor.stop()
        self.transport.cleanup()
        self.db.close()
