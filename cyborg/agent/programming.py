# SPDX-License-Identifier: Apache-2.0
"""Loads what a host has to load, and tells how it went."""

import threading
import time
from collections.abc import Sequence

import oslo_messaging as messaging
from oslo_log import log

from cyborg import context, errors, objects
from cyborg.agent.attach import TRIES
from cyborg.agent.bitstreams import Bitstreams
from cyborg.agent.pool import Pool
from cyborg.conductor.rpcapi import ConductorAPI

LOG = log.getLogger(__name__)


class Programmer:
    """Works on several cards at a time, on one card never twice at a time."""

    def __init__(self, hostname: str, bitstreams: Bitstreams, conductor: ConductorAPI,
                 pool: Pool) -> None:
        self._hostname = hostname
        self._bitstreams = bitstreams
        self._conductor = conductor
        self._pool = pool
        self._lock = threading.Lock()
        self._queued: set[tuple[str, int]] = set()
        #: those of the queued that have not ended, whether told or not
        self._loading: set[tuple[str, int]] = set()
        #: grows with all that ends
        self.count = 0
        #: by deployable, the count when something last ended there
        self._ended: dict[str, int] = {}

    @property
    def is_idle(self) -> bool:
        """Nothing is being loaded, and nothing begins to be before ``do`` is called."""
        return not self._loading

    def do(self, programmings: Sequence[objects.Programming], count: int) -> None:
        """Begin these, unless they are under way already.

        ``count`` is ours from before somebody was asked what there is to do: what has ended
        since may be over, and if it is not, it will be asked for again.
        """
        for each in programmings:
            with self._lock:
                if (_identity(each) in self._queued
                        or self._ended.get(each.deployable_uuid, 0) > count):
                    continue
                self._queued.add(_identity(each))
                self._loading.add(_identity(each))
            self._pool.submit((self._hostname, each.device_key), 0.0, self._run, each)

    def _run(self, programming: objects.Programming) -> None:
        try:
            outcome = self._perform(programming)
            with self._lock:
                self._loading.discard(_identity(programming))
            self._tell(outcome)
        finally:
            with self._lock:
                self.count += 1
                self._ended[programming.deployable_uuid] = self.count
                self._queued.discard(_identity(programming))

    def _perform(self, programming: objects.Programming) -> objects.Programmed:
        error, is_touched = None, True
        try:
            self._bitstreams.load(programming)
            LOG.info('Loaded image %s into %s.', programming.image_uuid,
                     programming.deployable_name)
        except Exception as failure:
            if not isinstance(failure, errors.CyborgError):
                LOG.exception('Loading an image failed unexpectedly.')
                failure = errors.CyborgError()
            error, is_touched = failure.faultstring, isinstance(failure, errors.DriverFailed)
            LOG.warning('Could not load image %s into %s: %s', programming.image_uuid,
                        programming.deployable_name, error)
        return objects.Programmed(deployable_uuid=programming.deployable_uuid,
                                  turn=programming.turn, error=error, is_touched=is_touched)

    _pause = staticmethod(time.sleep)

    def _tell(self, outcome: objects.Programmed) -> None:
        """What nobody hears comes back with a plan, and is repeated."""
        for attempt in range(TRIES):
            try:
                self._conductor.finish_programming(context.internal(), self._hostname, outcome)
                return
            except (messaging.MessagingException, errors.Unavailable) as error:
                LOG.warning('Could not tell how programming ended: %s', error)
                self._pause(attempt)


def _identity(programming: objects.Programming) -> tuple[str, int]:
    return programming.deployable_uuid, programming.turn
