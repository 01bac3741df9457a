# SPDX-License-Identifier: Apache-2.0
"""An agent as a whole: its parts, put together, started and stopped."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cyborg import rpc
from cyborg.accelerator import driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent import endpoints, hotplug
from cyborg.agent.bitstreams import Bitstreams
from cyborg.agent.cleaning import Cleaner
from cyborg.agent.drivers import Guard
from cyborg.agent.heartbeat import Heartbeat
from cyborg.agent.inventory import Inventory
from cyborg.agent.pool import Threads
from cyborg.agent.worker import Worker
from cyborg.clients.glance import Glance
from cyborg.clients.placement import Placement
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)

MakeMonitor = Callable[[hotplug.OnEvent], hotplug.Monitor]


class Agent:
    """Everything on one host. A simulated host brings its own sysfs and events."""

    def __init__(self, conf: cfg.ConfigOpts, transport: Any, hostname: str,
                 placement: Placement, glance: Glance | None, sysfs: Sysfs,
                 make_monitor: MakeMonitor = hotplug.UdevMonitor,
                 driver_names: list[str] | None = None) -> None:
        names = conf.agent.enabled_drivers if driver_names is None else driver_names
        if not names:
            LOG.warning('[agent] enabled_drivers names no driver: no device of %s is found or '
                        'offered.', hostname)
        cleaner = Cleaner(conf, hostname)
        guards = [Guard(each, conf.agent.driver_timeout, conf.agent.program_timeout,
                        cleaner.level_of)
                  for each in driver.load(names, conf, sysfs)]
        conductor = ConductorAPI(transport)
        self.hostname = hostname
        self._pool = Threads(conf.agent.work_threads)
        self.worker = Worker(hostname, guards, conductor, self._pool,
                             Bitstreams(conf, hostname, glance), cleaner)
        self.inventory = Inventory(conf, hostname, guards, conductor, placement, self.worker,
                                   sysfs)
        self._heartbeat = Heartbeat(
            f'heartbeat-{hostname}', conf.agent.resync_interval, self.inventory.beat)
        self._monitor = make_monitor(self._hear)
        self._server = rpc.Server(transport, rpc.AGENT, hostname, [
            endpoints.Conducted(self.inventory, self.worker),
            endpoints.OsAcc(conf, hostname, self.inventory, conductor)])

    def _hear(self, event: hotplug.Event) -> None:
        LOG.debug('%s %s %s', event.action, event.subsystem, event.device)
        self.inventory.wake()

    def start(self) -> None:
        """Listen before looking, so that nothing happens unheard between the two."""
        self._server.start()
        self._monitor.start()
        self.inventory.start()
        self._heartbeat.start()

    def stop(self) -> None:
        """Take no new work, finish what is under way; the rest is in the conductor's rows."""
        self._monitor.stop()
        self._server.stop()
        self._server.wait()
        self._heartbeat.stop()
        self.inventory.stop()
        self._pool.stop()
