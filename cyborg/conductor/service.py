# SPDX-License-Identifier: Apache-2.0
"""The conductor service: builds, starts and stops its parts."""

from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from oslo_log import log

from cyborg import metrics, rpc
from cyborg.agent.rpcapi import AgentAPI
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Offers, Reservations
from cyborg.conductor.agent_versions import LowestVersion
from cyborg.conductor.agents import Agents
from cyborg.conductor.arqs import Arqs
from cyborg.conductor.availability import Availability
from cyborg.conductor.capacity import Capacity
from cyborg.conductor.device_profiles import DeviceProfiles
from cyborg.conductor.devices import Devices
from cyborg.conductor.engine.limits import RequestLimits
from cyborg.conductor.health import Health
from cyborg.conductor.metrics import Metrics
from cyborg.conductor.notifications import Notifier
from cyborg.conductor.os_acc import OsAcc
from cyborg.conductor.outbox import Outbox
from cyborg.conductor.reports import Heartbeats, Reports
from cyborg.conductor.silent_hosts import SilentHosts
from cyborg.conductor.sweep import Sweep
from cyborg.conductor.usage import UsageReports
from cyborg.db.sqlalchemy.engine import Database

LOG = log.getLogger(__name__)

ENDPOINTS = (
    Reports,
    Heartbeats,
    Agents,
    DeviceProfiles,
    Arqs,
    Devices,
    Capacity,
    UsageReports,
    OsAcc,
)
#: threads for heartbeats, however many of them wait
HEARTBEAT_THREADS = 4
#: threads for reports: few, so that callers of the API do not wait when thousands of agents start
REPORT_THREADS = 4
#: threads for other messages, however few connections are kept: kolla-ansible keeps one, and a
#: single thread would let each message wait for all others
FEWEST_THREADS = 4


def message_threads(connections: int) -> int:
    """Return how many threads process messages other than heartbeats and reports. With more threads
    than the pool keeps connections, the others would open a connection for every message."""
    return max(FEWEST_THREADS, connections - HEARTBEAT_THREADS - REPORT_THREADS)


class Conductor:
    """Owns the database. Any number of conductors work side by side."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        transport: Any,
        db: Database,
        nova: Nova,
        name: str,
        placement: Adapter | None = None,
    ) -> None:
        self.outbox = Outbox(
            db,
            nova,
            conf.conductor.sweep_interval,
            conf.conductor.refused_event_timeout,
            conf.conductor.unknown_server_timeout,
        )
        self._notifier = Notifier(conf, name, db)
        self._lowest_version = LowestVersion(db, conf.conductor.heartbeat_timeout)
        agents = AgentAPI(transport, self._lowest_version)
        parts = conf, db, agents, self.outbox, self._notifier, nova, _limits(conf)
        self.sweep = Sweep(*parts)
        self.sweep.silent_hosts = _silent_hosts(conf, db, placement)
        self.sweep.offers = Offers(placement)
        self._metrics = metrics.Listener(
            conf.conductor.metrics_host, conf.conductor.metrics_port, Metrics(db)
        )
        self._server = rpc.Server(
            transport,
            rpc.CONDUCTOR,
            name,
            [
                *(endpoint(*parts) for endpoint in ENDPOINTS),
                Availability(*parts, offers=self.sweep.offers),
                Health(*parts, offers=self.sweep.offers),
            ],
        )
        self._heartbeats = rpc.Server(
            transport, rpc.HEARTBEATS, name, [Heartbeats(*parts)], HEARTBEAT_THREADS
        )
        self._reports = rpc.Server(transport, rpc.REPORTS, name, [Reports(*parts)], REPORT_THREADS)
        conf.set_default('executor_thread_pool_size', message_threads(conf.database.max_pool_size))

    def start(self) -> None:
        self.outbox.start()
        self.sweep.start(self._lowest_version.read)
        # The common topic is last: an agent asks there whether the topic for reports exists.
        for server in (self._reports, self._heartbeats, self._server):
            server.start()
        self._metrics.start()

    def stop(self) -> None:
        """Take no new messages and finish those in progress."""
        self._metrics.stop()
        for server in (self._server, self._reports, self._heartbeats):
            server.stop()
            server.wait()
        self.sweep.stop()
        self.outbox.stop()
        self._notifier.stop()


def _limits(conf: cfg.ConfigOpts) -> RequestLimits | None:
    """Returns None if requests are not limited."""
    if not conf.conductor.limit_requests:
        return None
    # imported here: it takes memory, and registers options in the global configuration
    from cyborg.clients.limits import KeystoneLimits

    return KeystoneLimits(conf)


def _silent_hosts(
    conf: cfg.ConfigOpts, db: Database, placement: Adapter | None
) -> SilentHosts | None:
    """Returns None if nothing is reserved for silent agents."""
    if not conf.conductor.silent_agent_timeout:
        return None
    if placement is None:
        LOG.warning(
            'Devices of silent agents remain available in Placement, because [placement] is not '
            'configured here. Set its auth_type, or [conductor] silent_agent_timeout = 0.'
        )
        return None
    timeout = max(conf.conductor.silent_agent_timeout, conf.conductor.heartbeat_timeout)
    return SilentHosts(db, Reservations(placement), timeout)
