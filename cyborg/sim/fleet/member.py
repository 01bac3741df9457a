# SPDX-License-Identifier: Apache-2.0
"""The process that runs a share of a fleet: its clock, its rounds, what happens to its hosts."""

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
from cyborg.sim.fleet import churn
from cyborg.sim.fleet.exchange import Server
from cyborg.sim.fleet.figures import Figures
from cyborg.sim.fleet.host import Host

#: reports under way at a time; heartbeats never wait for them
REPORTING = 8
#: jobs of attachers at a time
WORKING = 8
#: seconds between two questions whether a heartbeat has arrived
ASKING = 1.0
#: what two clocks may differ by
SKEW = 1.0
#: seconds after which a heartbeat should have arrived
ARRIVED = 5.0


@dataclass(frozen=True)
class Order:
    """What a process is to do."""

    config_files: Sequence[str]
    names: Sequence[str]
    devices: int
    #: seconds between two rounds of a host
    period: float
    #: hosts reported long ago, and conductors know it
    known: bool = False
    #: a minute, over the hosts of this process
    cards: float = 0.0
    binds: float = 0.0
    #: seconds between two tellings
    every: float = 60.0


class Member:
    """Hosts, and the loop that lets each make its round when it is due."""

    def __init__(self, conf: cfg.ConfigOpts, order: Order, directory: pathlib.Path) -> None:
        self.order = order
        self.figures = Figures()
        self.transport = rpc.transport(conf)
        self.conductor = ConductorAPI(self.transport)
        self._work, sysfs = Threads(WORKING), Sysfs(directory)
        self.hosts = {name: Host(conf, name, order.devices, self.conductor, self._work, sysfs)
                      for name in order.names}
        if order.known:
            for host in self.hosts.values():
                host.agree()
        self._server = Server(self.transport, self.hosts)
        self._reports = concurrent.futures.ThreadPoolExecutor(REPORTING)
        self._reporting: set[str] = set()
        self._sent: dict[str, float] = {}
        self._stopping = threading.Event()

    def start(self) -> None:
        """Listen before speaking."""
        self._server.start()
        jobs: list[tuple[float, Callable[[], None]]] = [(ASKING, self._ask)]
        for rate, make in ((self.order.cards, churn.Cards), (self.order.binds, churn.Binds)):
            if rate:
                jobs.append((60 / rate, make(self).happen))
        for pause, job in (*jobs, (0, self._beat)):
            threading.Thread(target=self._repeat, args=(pause, job), daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.stop()
        self._server.wait()
        self._reports.shutdown(cancel_futures=True)
        self._work.stop()

    def look(self, host: Host) -> None:
        """Have a host report, as an event would."""
        if host.name not in self._reporting:
            self._reporting.add(host.name)
            self._reports.submit(self._look, host)

    # -- rounds ----------------------------------------------------------------------------

    def _beat(self) -> None:
        """Spread the hosts over the period, and let them keep their turns."""
        start, period = time.monotonic(), self.order.period
        due = [(start + period * number / len(self.hosts), name)
               for number, name in enumerate(self.hosts)]
        while not self._stopping.is_set():
            moment, name = due[0]
            if self._stopping.wait(max(0.0, moment - time.monotonic())):
                return
            self.figures.count('missed', max(0, int((time.monotonic() - moment) / period)))
            heapq.heapreplace(due, (max(moment + period, time.monotonic()), name))
            self._round(self.hosts[name])

    def _round(self, host: Host) -> None:
        if host.name in self._reporting:
            return  # what it says says also that it lives
        if host.must_look:
            self.look(host)
        elif self._tried('send', host.beat):
            self.figures.count('sent')
            self._sent[host.name] = time.time()

    def _look(self, host: Host) -> None:
        try:
            for _ in range(2):  # the first report of a host is followed by one that it is ready
                if host.must_look and self._tried('report', host.look):
                    self.figures.count('looks')
                    self._sent[host.name] = time.time()
        finally:
            self._reporting.discard(host.name)

    def _tried(self, name: str, do: Callable[[], Any]) -> bool:
        """Do and time something that a broker or a conductor may fail."""
        began = time.perf_counter()
        try:
            do()
        except (messaging.MessagingException, errors.CyborgError) as error:
            self.figures.count('failed')
            logging.getLogger(__name__).warning('%s: %s', name, error)
            return False
        self.figures.took(name, time.perf_counter() - began)
        return True

    # -- questions -------------------------------------------------------------------------

    def _ask(self) -> None:
        """Does a conductor know of a heartbeat that should have arrived? And how long does it
        take to answer, with all that the fleet sends?"""
        before = time.time() - min(ARRIVED, self.order.period / 2)
        arrived = [name for name, sent in list(self._sent.items()) if sent < before]
        if not arrived:
            return
        name = random.choice(arrived)
        sent, found = self._sent[name], []
        if self._tried('ask', lambda: found.append(
                self.conductor.get_agent(context.internal(), name))):
            self.figures.count('asked')
            if found[0].last_heartbeat.timestamp() < sent - SKEW:
                self.figures.count('behind')

    def _repeat(self, pause: float, job: Callable[[], None]) -> None:
        while not self._stopping.wait(pause):
            try:
                job()
            except Exception:
                self.figures.count('failed')
                logging.getLogger(__name__).exception('A part of the fleet failed.')


def main(order: Order, told: Any, stopping: Any) -> None:
    """What a process of the fleet runs: tells its figures every so often until told to stop."""
    parent = multiprocessing.parent_process()
    # Ctrl-C reaches all processes, and the parent tells us in its own time
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    files = [word for each in order.config_files for word in ('--config-file', each)]
    conf = startup.configure(files, default_config_files=[])
    logging.getLogger('cyborg').setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix='cyborg-fleet-') as directory:
        member = Member(conf, order, pathlib.Path(directory))
        member.start()
        told.put(None)  # listening
        while not stopping.wait(order.every) and parent.is_alive():
            told.put(member.figures.take())
        told.put(member.figures.take())
        member.stop()
