# SPDX-License-Identifier: Apache-2.0
"""A process that runs a share of the fleet's hosts: their rounds and their changes."""

import concurrent.futures
import heapq
import logging
import multiprocessing
import pathlib
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

from cyborg import context, errors, rpc
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.pool import Threads
from cyborg.cmd import startup
from cyborg.conductor.rpcapi import ConductorAPI
from tools.fleet import churn
from tools.fleet.host import FleetHost
from tools.fleet.interval_statistics import IntervalStatistics
from tools.fleet.rpc_server import SharedRpcServer

#: threads that report; heartbeats never wait for them
REPORT_THREADS = 8
#: threads that perform tasks
TASK_THREADS = 8
#: seconds between two queries whether a heartbeat has arrived
QUERY_INTERVAL = 1.0
#: seconds by which two clocks may differ
CLOCK_SKEW = 1.0
#: seconds after which a heartbeat should have arrived
ARRIVAL = 5.0


@dataclass(frozen=True)
class Assignment:
    """The hosts and rates of one process."""

    config_files: Sequence[str]
    names: Sequence[str]
    devices: int
    #: seconds between two rounds of a host
    period: float
    #: the conductors know these hosts already
    known: bool = False
    #: changes per minute, over the hosts of this process
    cards: float = 0.0
    binds: float = 0.0
    #: seconds between two sets of statistics
    every: float = 60.0


class FleetProcess:
    """Holds the hosts, and starts the round of each when it is due."""

    def __init__(
        self, conf: cfg.ConfigOpts, assignment: Assignment, directory: pathlib.Path
    ) -> None:
        self.assignment = assignment
        self.statistics = IntervalStatistics()
        self.transport = rpc.transport(conf)
        self.conductor = ConductorAPI(self.transport)
        self._work, sysfs = Threads(TASK_THREADS), Sysfs(directory)
        self.hosts = {
            name: FleetHost(conf, name, assignment.devices, self.conductor, self._work, sysfs)
            for name in assignment.names
        }
        if assignment.known:
            for host in self.hosts.values():
                host.assume_reported()
        self._server = SharedRpcServer(self.transport, self.hosts)
        self._reports = concurrent.futures.ThreadPoolExecutor(REPORT_THREADS)
        self._reporting: set[str] = set()
        self._sent: dict[str, float] = {}
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start to listen, then start the rounds and the changes."""
        self._server.start()
        jobs: list[tuple[float, Callable[[], None]]] = [(QUERY_INTERVAL, self._query)]
        for rate, make in (
            (self.assignment.cards, churn.CardChanges),
            (self.assignment.binds, churn.BindRequests),
        ):
            if rate:
                jobs.append((60 / rate, make(self).perform))
        for pause, job in (*jobs, (0, self._beat)):
            threading.Thread(target=self._repeat, args=(pause, job), daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.stop()
        self._server.wait()
        self._reports.shutdown(cancel_futures=True)
        self._work.stop()

    def report(self, host: FleetHost) -> None:
        """Start a report of a host, as a udev event does."""
        if host.name not in self._reporting:
            self._reporting.add(host.name)
            self._reports.submit(self._report, host)

    # -- rounds ----------------------------------------------------------------------------

    def _beat(self) -> None:
        """Spread the rounds of the hosts evenly over the period."""
        start, period = time.monotonic(), self.assignment.period
        due = [
            (start + period * number / len(self.hosts), name)
            for number, name in enumerate(self.hosts)
        ]
        while not self._stopping.is_set():
            moment, name = due[0]
            if self._stopping.wait(max(0.0, moment - time.monotonic())):
                return
            self.statistics.count('missed', max(0, int((time.monotonic() - moment) / period)))
            heapq.heapreplace(due, (max(moment + period, time.monotonic()), name))
            self._round(self.hosts[name])

    def _round(self, host: FleetHost) -> None:
        if host.name in self._reporting:
            return  # a report is a heartbeat, too
        if host.must_report:
            self.report(host)
        elif self._timed('send', host.beat):
            self.statistics.count('sent')
            self._sent[host.name] = time.time()

    def _report(self, host: FleetHost) -> None:
        try:
            for _ in range(2):  # a new host reports again when it is ready
                if host.must_report and self._timed('report', host.report):
                    self.statistics.count('looks')
                    self._sent[host.name] = time.time()
        finally:
            self._reporting.discard(host.name)

    def _timed(self, name: str, do: Callable[[], Any]) -> bool:
        """Call and time a function; returns False if the broker or a conductor fails."""
        began = time.perf_counter()
        try:
            do()
        except (messaging.MessagingException, errors.CyborgError) as error:
            self.statistics.count('failed')
            logging.getLogger(__name__).warning('%s: %s', name, error)
            return False
        self.statistics.add_time(name, time.perf_counter() - began)
        return True

    # -- queries ---------------------------------------------------------------------------

    def _query(self) -> None:
        """Query a conductor for a host: does it know of a heartbeat that should have arrived, and
        how long does the call take under the load of the fleet?"""
        before = time.time() - min(ARRIVAL, self.assignment.period / 2)
        arrived = [name for name, sent in list(self._sent.items()) if sent < before]
        if not arrived:
            return
        name = random.choice(arrived)
        sent, found = self._sent[name], []
        if self._timed(
            'ask', lambda: found.append(self.conductor.get_agent(context.internal(), name))
        ):
            self.statistics.count('asked')
            if found[0].last_heartbeat.timestamp() < sent - CLOCK_SKEW:
                self.statistics.count('behind')

    def _repeat(self, pause: float, job: Callable[[], None]) -> None:
        while not self._stopping.wait(pause):
            try:
                job()
            except Exception:
                self.statistics.count('failed')
                logging.getLogger(__name__).exception('A periodic job of the fleet failed.')


def main(assignment: Assignment, messages: Any, stopping: Any) -> None:
    """Run the hosts, and put statistics into the queue periodically, until stopped."""
    parent = multiprocessing.parent_process()
    # Ctrl-C reaches all processes; only the parent handles it, and then stops this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    files = [word for each in assignment.config_files for word in ('--config-file', each)]
    conf = startup.configure(files, default_config_files=[])
    logging.getLogger('cyborg').setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix='cyborg-fleet-') as directory:
        process = FleetProcess(conf, assignment, pathlib.Path(directory))
        process.start()
        messages.put(None)  # listening
        while not stopping.wait(assignment.every) and parent.is_alive():
            messages.put(process.statistics.take())
        messages.put(process.statistics.take())
        process.stop()
