# SPDX-License-Identifier: Apache-2.0
"""Composes, starts and stops an agent."""

from collections.abc import Callable, Collection
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cyborg import metrics, rpc
from cyborg.accelerator import driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent import endpoints, hotplug
from cyborg.agent.bitstreams import Bitstreams
from cyborg.agent.cleaning import Cleaner
from cyborg.agent.driver_guard import Guard
from cyborg.agent.heartbeat import Heartbeat
from cyborg.agent.inventory import Inventory
from cyborg.agent.node_devices import NodeDevices
from cyborg.agent.pool import Threads
from cyborg.agent.worker import Worker
from cyborg.clients.glance import Glance
from cyborg.clients.placement import Placement
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)

#: Makes a monitor of udev subsystems.
MakeMonitor = Callable[[hotplug.OnEvent, Collection[str]], hotplug.Monitor]


class Agent:
    """The agent of one host. Simulated hosts pass their own sysfs and monitor."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        transport: Any,
        hostname: str,
        placement: Placement,
        glance: Glance | None,
        sysfs: Sysfs,
        make_monitor: MakeMonitor = hotplug.UdevMonitor,
        driver_names: list[str] | None = None,
    ) -> None:
        names = conf.agent.enabled_drivers if driver_names is None else driver_names
        if not names:
            LOG.warning(
                '[agent] enabled_drivers names no driver: no device of %s is found or offered.',
                hostname,
            )
        cleaner = Cleaner(conf, hostname)
        drivers = driver.load(names, conf, sysfs)
        guards = [
            Guard(each, conf.agent.driver_timeout, conf.agent.program_timeout, cleaner.level_of)
            for each in drivers
        ]
        conductor = ConductorAPI(transport, rpc.Limits.of_agent(conf))
        self.hostname = hostname
        self._pool = Threads(conf.agent.work_threads)
        bitstreams = Bitstreams(conf, hostname, glance)
        self.worker = Worker(
            hostname,
            guards,
            conductor,
            self._pool,
            bitstreams,
            cleaner,
            NodeDevices(conf, sysfs),
        )
        self.inventory = Inventory(conf, hostname, guards, conductor, placement, self.worker, sysfs)
        self._heartbeat = Heartbeat(
            f'heartbeat-{hostname}', conf.agent.resync_interval, self.inventory.beat
        )
        subsystems = {subsystem for each in drivers for subsystem in each.subsystems}
        self._monitor = make_monitor(self._on_event, subsystems)
        self._metrics = metrics.Listener(conf.agent.metrics_host, conf.agent.metrics_port)
        self._server = rpc.Server(
            transport,
            rpc.AGENT,
            hostname,
            [
                endpoints.AgentEndpoint(self.inventory, self.worker),
                endpoints.OsAccEndpoint(conf, hostname, self.inventory, conductor, bitstreams),
            ],
        )

    def _on_event(self, event: hotplug.UdevEvent) -> None:
        LOG.debug('%s %s %s', event.action, event.subsystem, event.device)
        if event.removed is not None:
            self.inventory.note_removal(event.removed)
        self.inventory.wake()

    def start(self) -> None:
        """Start to listen before the first look at the devices, so that no event is missed."""
        self._metrics.start()
        self._server.start()
        self._monitor.start()
        self.inventory.start()
        self._heartbeat.start()

    def stop(self) -> None:
        """Finish running tasks. The conductor has the others in its database."""
        self._monitor.stop()
        self._server.stop()
        self._server.wait()
        self._heartbeat.stop()
        self.inventory.stop()
        self._pool.stop()
        self._metrics.stop()
