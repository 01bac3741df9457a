# SPDX-License-Identifier: Apache-2.0
"""Does what a host has to do for its handles, and tells how it went."""

import concurrent.futures
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import context, errors, objects
from cyborg.agent import drivers
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)

TRIES = 3  #: to tell the outcome; after that the work comes back with a plan, and is repeated


class Pool(Protocol):
    """Where jobs run."""

    def submit(self, delay: float, job: Callable[..., None], *arguments: Any) -> None:
        """Run a job, not before so many seconds have passed."""

    def stop(self) -> None:
        """Finish those that run, forget the others."""


class Threads:
    """A pool of threads, and timers for what must wait."""

    def __init__(self, count: int) -> None:
        self._stopping = threading.Event()
        self._threads = concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix='work')

    def submit(self, delay: float, job: Callable[..., None], *arguments: Any) -> None:
        if delay:
            timer = threading.Timer(delay, self.submit, [0.0, job, *arguments])
            timer.daemon = True
            timer.start()
        elif not self._stopping.is_set():
            self._threads.submit(job, *arguments)

    def stop(self) -> None:
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)


class Attacher:
    """Works on several servers at a time, on one handle never twice at a time."""

    def __init__(self, conf: cfg.ConfigOpts, hostname: str, guards: Sequence[drivers.Guard],
                 conductor: ConductorAPI, pool: Pool | None = None) -> None:
        self._hostname = hostname
        self._guards = {guard.name: guard for guard in guards}
        self._conductor = conductor
        self._pool = pool or Threads(conf.agent.work_threads)
        self._lock = threading.Lock()
        self._handle_locks: dict[str, threading.Lock] = {}
        self._queued: set[tuple[str, str, int]] = set()
        #: by handle, what was last asked for; what comes before that comes too late
        self._latest: dict[str, tuple[int, bool]] = {}
        self._prepared: dict[str, int] = {}
        #: grows with all that is done to the host
        self.count = 0

    def stop(self) -> None:
        """Finish what is under way; the rest is in the conductor's rows."""
        self._pool.stop()

    def do(self, works: Sequence[objects.Work]) -> None:
        """Begin these, unless they are under way already; one job a server."""
        for _, group in itertools.groupby(works, key=lambda work: work.instance_uuid):
            fresh = [work for work in group if self._enqueue(work)]
            if fresh:
                self._pool.submit(max(work.delay for work in fresh), self._run, fresh)

    @property
    def is_idle(self) -> bool:
        """Nothing is under way, and all that was done has been told."""
        with self._lock:
            return not self._queued

    @property
    def prepared(self) -> dict[str, int]:
        """The handles that are prepared, with the turn for which they are."""
        with self._lock:
            return dict(self._prepared)

    def _enqueue(self, work: objects.Work) -> bool:
        with self._lock:
            if _identity(work) in self._queued:
                return False
            self._queued.add(_identity(work))
            latest = self._latest.get(work.handle.uuid, _order(work))
            self._latest[work.handle.uuid] = max(latest, _order(work))
            return True

    def _run(self, works: list[objects.Work]) -> None:
        try:
            outcomes = [self._perform(work) for work in works]
            more = self._tell([outcome for outcome in outcomes if outcome is not None])
        finally:
            with self._lock:
                self._queued.difference_update(map(_identity, works))
        self.do(more)

    def _perform(self, work: objects.Work) -> objects.Outcome | None:
        with self._lock:
            handle_lock = self._handle_locks.setdefault(work.handle.uuid, threading.Lock())
            self.count += 1
        error = None
        with handle_lock:
            if _order(work) < self._latest[work.handle.uuid]:
                LOG.info('Too late to %s %s of %s.', work.kind, work.handle.key,
                         work.deployable_name)
                return None
            try:
                guard = self._guards.get(work.driver_name)
                if guard is None:
                    raise errors.DriverFailed(
                        name=work.driver_name, why=f'it is not enabled on {self._hostname}.')
                if work.kind == objects.WorkKind.ATTACH:
                    guard.attach(work)
                    with self._lock:
                        self._prepared[work.handle.uuid] = work.turn
                else:
                    with self._lock:
                        self._prepared.pop(work.handle.uuid, None)
                    guard.detach(work)
            except errors.CyborgError as failure:
                error = failure.faultstring
                LOG.warning('Could not %s %s of %s: %s', work.kind, work.handle.key,
                            work.deployable_name, error)
        return objects.Outcome(kind=work.kind, handle_uuid=work.handle.uuid, turn=work.turn,
                               arq_uuid=work.arq_uuid, error=error)

    _pause = staticmethod(time.sleep)

    def _tell(self, outcomes: list[objects.Outcome]) -> list[objects.Work]:
        for attempt in range(TRIES if outcomes else 0):
            try:
                return self._conductor.finish_work(
                    context.internal(), self._hostname, outcomes)
            except (messaging.MessagingException, errors.Unavailable) as error:
                LOG.warning('Could not tell how work ended: %s', error)
                self._pause(attempt)
        return []


def _identity(work: objects.Work) -> tuple[str, str, int]:
    return work.kind, work.handle.uuid, work.turn


def _order(work: objects.Work) -> tuple[int, bool]:
    """Who takes a handle has it prepared, and cleaned when he lets go; then comes the next."""
    return work.turn, work.kind == objects.WorkKind.DETACH
