# SPDX-License-Identifier: Apache-2.0
"""The all-in-one mode: API, conductor and agents in one process.

It runs the same code as separate services. Its configuration replaces the servers by an SQLite
file, the in-process transport and Placement's WSGI application.
"""

import pathlib
import uuid
from collections.abc import Collection, Sequence
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
from cyborg.db.sqlalchemy import engine, migration, revisions

PLACEMENT = 'http://placement.local'
#: silences the warning of oslo.messaging that the memory transport is experimental
LOG_LEVELS = (
    'oslo.messaging._drivers.impl_rabbit=ERROR,kombu=ERROR,amqp=WARNING,'
    'alembic=WARNING,placement=WARNING,keystoneauth=WARNING,urllib3=WARNING,stevedore=WARNING'
)
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
    """A compute host: its name, sysfs, drivers and udev events."""

    name: str
    sysfs: Sysfs
    drivers: Sequence[str]

    def monitor(self, on_event: OnEvent, subsystems: Collection[str]) -> Monitor: ...


def write_configuration(
    directory: pathlib.Path,
    nova: str,
    port: int = 6666,
    database: str | None = None,
    glance: str | None = None,
    transport: str = 'kombu+memory://localhost//',
    placement: str = PLACEMENT,
    more: str = '',
) -> pathlib.Path:
    """Write the configuration of a Standalone that has its data in this directory.

    ``placement``: the URL under which other processes reach Placement, if it is served.
    """
    path = directory / 'cyborg.conf'
    # unique, so that two instances never receive each other's messages
    exchange = f'cyborg-{uuid.uuid4()}'
    path.write_text(
        CONFIGURATION.format(
            transport=transport,
            exchange=exchange,
            directory=directory,
            port=port,
            nova=nova,
            levels=LOG_LEVELS,
            placement=placement,
            token=embedded_placement.TOKEN,
            glance=GLANCE.format(url=glance) if glance else '',
            database=database or f'sqlite:///{directory}/cyborg.db',
        )
        + more
    )
    return path


class Standalone:
    """All services in one process, with one or more conductors and hosts."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        directory: pathlib.Path,
        conductors: int = 1,
        placement: str = PLACEMENT,
    ) -> None:
        """``placement``: the URL of Placement in the configuration."""
        self.conf = conf
        session = requests.Session()
        #: Placement's own application. Here it is called in this process, whatever its URL is.
        self.placement_app = embedded_placement.load(directory / 'placement.db')
        wsgi.mount(session, placement, self.placement_app)
        self.placement = keystone.connect(conf, 'placement', session)
        self.db = engine.Database(conf.database.connection)
        if revisions.version(self.db) != revisions.head():
            migration.upgrade(self.db)
        self.db.trace(conf)
        self.transport = rpc.transport(conf)
        self.conductors = [
            Conductor(
                conf,
                self.transport,
                self.db,
                Nova(keystone.connect(conf, 'nova')),
                f'conductor-{number}',
                self.placement,
            )
            for number in range(conductors)
        ]
        self.agents: dict[str, Agent] = {}
        self.api: Any = app.load_app(conf, ConductorAPI(self.transport, rpc.Limits.of_api(conf)))

    def start(self) -> None:
        for conductor in self.conductors:
            conductor.start()

    def add_host(self, host: Host) -> Agent:
        """Start the agent of a host."""
        agent = Agent(
            self.conf,
            self.transport,
            host.name,
            Placement(self.placement),
            Glance.connect(self.conf),
            host.sysfs,
            host.monitor,
            list(host.drivers),
        )
        self.agents[host.name] = agent
        agent.start()
        return agent

    def remove_host(self, name: str) -> None:
        """Stop the agent of a host."""
        self.agents.pop(name).stop()

    def stop(self) -> None:
        """Stop agents before conductors, which they call, and then the transport and database."""
        for name in list(self.agents):
            self.remove_host(name)
        for conductor in self.conductors:
            conductor.stop()
        self.transport.cleanup()
        self.db.close()
