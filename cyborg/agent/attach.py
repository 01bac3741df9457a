# SPDX-License-Identifier: Apache-2.0
"""Does what a host has to do for its handles, and tells how it went."""

import threading
import time
from collections.abc import Collection, Sequence

import oslo_messaging as messaging
from oslo_log import log

from cyborg import context, errors, objects
from cyborg.agent import drivers
from cyborg.agent.pool import Pool
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)

TRIES = 3  #: to tell the outcome; after that the work comes back with a plan, and is repeated


class Attacher:
    """Works on several cards at a time, on one card never twice at a time."""

    def __init__(self, hostname: str, guards: Sequence[drivers.Guard], conductor: ConductorAPI,
                 pool: Pool) -> None:
        self._hostname = hostname
        self._guards = {guard.name: guard for guard in guards}
        self._conductor = conductor
        self._pool = pool
        self._lock = threading.Lock()
        self._queued: set[tuple[str, str, int]] = set()
        #: by handle, what was last asked for; what comes before that comes too late
        self._latest: dict[str, tuple[int, bool]] = {}
        #: by handle, the work that prepared it
        self._prepared: dict[str, objects.Work] = {}
        #: grows with all that was done to the host
        self.count = 0
        #: by handle, the count when work on it last ended
        self._ended: dict[str, int] = {}

    def do(self, works: Sequence[objects.Work]) -> None:
        """Begin these, unless they are under way already.

        What a server gets on one card is one job, so that one message tells of it. A clean-up
        is a job of its own: it is waited for by nobody else. What failed before waits for its
        own delay only.
        """
        jobs: dict[tuple[str, str, float], list[objects.Work]] = {}
        for work in works:
            if self._enqueue(work):
                whose = work.instance_uuid or work.handle.uuid
                jobs.setdefault((work.device_key, whose, work.delay), []).append(work)
        for (card, _, delay), job in jobs.items():
            self._pool.submit((self._hostname, card), delay, self._run, job)

    @property
    def prepared(self) -> dict[str, int]:
        """The handles that are prepared, with the turn for which they are."""
        with self._lock:
            return {handle: work.turn for handle, work in self._prepared.items()}

    def in_flux(self, since: int) -> set[str]:
        """Handles that may have changed since ``count`` was that, or may change now."""
        with self._lock:
            return ({handle for _, handle, _ in self._queued}
                    | {handle for handle, count in self._ended.items() if count > since})

    def lost(self, driver_names: Collection[str]) -> dict[str, int]:
        """Prepared handles that are no longer as they were left, with their turns, as far as
        these drivers can tell."""
        with self._lock:
            prepared = list(self._prepared.values())
        lost: dict[str, int] = {}
        for name in driver_names:
            works = [work for work in prepared if work.driver_name == name]
            try:
                gone = self._guards[name].lost(works) if works else []
            except errors.CyborgError as failure:
                LOG.warning('Could not look at what was prepared: %s', failure.faultstring)
                continue
            lost |= {work.handle.uuid: work.turn for work in gone}
        return lost

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
                self.count += 1
                self._ended.update((work.handle.uuid, self.count) for work in works)
                self._queued.difference_update(map(_identity, works))
        self.do(more)

    def _perform(self, work: objects.Work) -> objects.Outcome | None:
        with self._lock:
            is_late = _order(work) < self._latest[work.handle.uuid]
        if is_late:
            LOG.info('Too late to %s %s of %s.', work.kind, work.handle.key,
                     work.deployable_name)
            return None
        error = None
        try:
            guard = self._guards.get(work.driver_name)
            if guard is None:
                raise errors.DriverFailed(
                    name=work.driver_name, why=f'it is not enabled on {self._hostname}.')
            if work.kind == objects.WorkKind.ATTACH:
                guard.attach(work)
                with self._lock:
                    self._prepared[work.handle.uuid] = work
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
