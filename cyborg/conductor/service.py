# SPDX-License-Identifier: Apache-2.0
"""A conductor as a whole: its parts, put together, started and stopped."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from cyborg import rpc
from cyborg.agent.rpcapi import AgentAPI
from cyborg.clients.nova import Nova
from cyborg.conductor.agents import Agents
from cyborg.conductor.arqs import Arqs
from cyborg.conductor.device_profiles import DeviceProfiles
from cyborg.conductor.devices import Devices
from cyborg.conductor.hosts import Heartbeats, Hosts
from cyborg.conductor.metrics import Metrics
from cyborg.conductor.notifications import Notifier
from cyborg.conductor.os_acc import OsAcc
from cyborg.conductor.outbox import Outbox
from cyborg.conductor.sweep import Sweep
from cyborg.db.sqlalchemy.engine import Database

ENDPOINTS = (Hosts, Heartbeats, Agents, DeviceProfiles, Arqs, Devices, OsAcc)
#: threads for heartbeats, however many of them wait
HEARTBEAT_THREADS = 4


class Conductor:
    """The owner of the rows. Any number of them work side by side."""

    def __init__(self, conf: cfg.ConfigOpts, transport: Any, db: Database, nova: Nova,
                 name: str) -> None:
        self.outbox = Outbox(db, nova, conf.conductor.sweep_interval,
                             conf.conductor.refused_event_timeout)
        self._notifier = Notifier(conf, name)
        parts = conf, db, AgentAPI(transport), self.outbox, self._notifier, nova
        self.sweep = Sweep(*parts)
        self._conf = conf.conductor
        self._metrics = Metrics(db)
        self._stop_metrics: Callable[[], None] | None = None
        self._server = rpc.Server(
            transport, rpc.CONDUCTOR, name, [endpoint(*parts) for endpoint in ENDPOINTS])
        self._heartbeats = rpc.Server(
            transport, rpc.HEARTBEATS, name, [Heartbeats(*parts)], HEARTBEAT_THREADS)
        # A thread more than there are connections to keep would open one for every message.
        conf.set_default('executor_thread_pool_size',
                         max(1, conf.database.max_pool_size - HEARTBEAT_THREADS))

    def start(self) -> None:
        self.outbox.start()
        self.sweep.start()
        self._server.start()
        self._heartbeats.start()
        if self._conf.metrics_port:
            self._stop_metrics = self._metrics.serve(self._conf.metrics_host,
                                                     self._conf.metrics_port)

    def stop(self) -> None:
        """Take no new message, finish those under way."""
        if self._stop_metrics is not None:
            self._stop_metrics()
        for server in (self._server, self._heartbeats):
            server.stop()
            server.wait()
        self.sweep.stop()
        self.outbox.stop()
        self._notifier.stop()
