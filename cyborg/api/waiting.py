# SPDX-License-Identifier: Apache-2.0
"""Waiting, for a while, until hosts have prepared what a request binds."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import oslo_messaging as messaging
from oslo_log import log

from cyborg import errors, objects
from cyborg.context import RequestContext
from cyborg.objects import arq_states
from cyborg.objects.arq_states import State

LOG = log.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5  # seconds

#: the bind is still on its way
PENDING = frozenset({State.BIND_STARTED, State.PROVISIONING, arq_states.UNKNOWN})


class Waiter:
    """Lets a few requests wait at a time: each holds a thread that others could use."""

    def __init__(self, conductor: Any, longest: float, at_a_time: int,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._conductor, self._longest = conductor, longest
        self._places = threading.Semaphore(at_a_time)
        self._clock, self._sleep = clock, sleep

    def settle(self, context: RequestContext, arqs: Sequence[objects.Arq]) -> None:
        """Return when all are bound or time is up; raise if a bind fails before that."""
        if not _pending(arqs) or not self._places.acquire(blocking=False):
            return
        try:
            self._wait(context, [arq.uuid for arq in arqs])
        finally:
            self._places.release()

    def _wait(self, context: RequestContext, uuids: list[str]) -> None:
        deadline, pause = self._clock() + self._longest, FIRST_PAUSE
        while (left := deadline - self._clock()) > 0:
            self._sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)
            try:
                arqs = self._conductor.list_arqs(context, {'uuid': uuids}, {})
            except messaging.MessagingException:
                # the bind goes on without our looking, and Nova hears how it ends
                LOG.warning('Cannot see how the bind of %s goes on.', ', '.join(uuids))
                return
            if missing := set(uuids) - {arq.uuid for arq in arqs}:
                raise errors.ArqNotFound(uuids=', '.join(sorted(missing)))
            if not _pending(arqs):
                return


def _pending(arqs: Sequence[objects.Arq]) -> bool:
    """Is one of them still on its way? BindFailed if one will not arrive."""
    for arq in arqs:
        if arq.state != State.BOUND and arq.state not in PENDING:
            raise errors.BindFailed(
                why=arq.given('reason') or f'accelerator request {arq.uuid} is {arq.state}.')
    return any(arq.state in PENDING for arq in arqs)
