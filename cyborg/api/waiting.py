# SPDX-License-Identifier: Apache-2.0
"""Waiting, for a while, until hosts have done what a request asks for."""

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

    def bind(self, context: RequestContext, bindings: Sequence[objects.Binding]) -> None:
        """Bind, as soon as hosts have cleaned what is to be had, and see how that ends.

        Who deletes a server and makes another comes back sooner than a host is done.
        """
        started: list[objects.Arq] | None = None
        refusal: errors.HandleNotClean | None = None

        def is_over() -> bool:
            nonlocal started, refusal
            try:
                started = self._conductor.bind_arqs(context, bindings)
            except errors.HandleNotClean as error:
                refusal = error
            return started is not None
        if not is_over():
            self._wait(is_over, f'the bind of {bindings[0].arq_uuid}')
        if started is None:
            raise refusal  # type: ignore[misc]
        self.settle(context, started)

    def settle(self, context: RequestContext, arqs: Sequence[objects.Arq]) -> None:
        """Return when all are bound or time is up; raise if a bind fails before that."""
        if not _pending(arqs):
            return
        uuids = [arq.uuid for arq in arqs]

        def is_over() -> bool:
            found = self._conductor.list_arqs(context, {'uuid': uuids}, {})
            if missing := set(uuids) - {arq.uuid for arq in found}:
                raise errors.ArqNotFound(uuids=', '.join(sorted(missing)))
            return not _pending(found)
        self._wait(is_over, f'the bind of {", ".join(uuids)}')

    def program(self, context: RequestContext,
                started: objects.Deployable) -> objects.Deployable:
        """Returns the deployable when its image is loaded or time is up; raises ProgramFailed if
        it is not going to be. As long as it ``is_programming``, that goes on."""
        seen = started

        def is_over() -> bool:
            nonlocal seen
            try:
                seen = self._conductor.get_deployable(context, started.uuid)
            except errors.DeployableNotFound as error:
                raise errors.ProgramFailed(
                    uuid=started.uuid, why='it went away meanwhile.') from error
            return not _goes_on(seen, started)
        self._wait(is_over, f'the programming of {started.uuid}')
        return seen

    def _wait(self, is_over: Callable[[], bool], what: str) -> None:
        """Look until it is over or time is up, unless too many do so already."""
        if not self._places.acquire(blocking=False):
            return
        deadline, pause = self._clock() + self._longest, FIRST_PAUSE
        try:
            while (left := deadline - self._clock()) > 0:
                self._sleep(min(pause, left))
                pause = min(pause * 2, LONGEST_PAUSE)
                if is_over():
                    return
        except messaging.MessagingException:
            # it goes on without our looking
            LOG.warning('Cannot see how %s goes on.', what)
        finally:
            self._places.release()


def _goes_on(seen: objects.Deployable, started: objects.Deployable) -> bool:
    """Is the image that was asked for being loaded? ProgramFailed if it will not be there."""
    is_same_task = seen.program_task_uuid == started.program_task_uuid
    if seen.is_programming and (is_same_task or seen.program_image == started.program_image):
        return True  # also if somebody asked for the same image once more
    if is_same_task and seen.program_error is not None:
        raise errors.ProgramFailed(uuid=seen.uuid, why=seen.program_error)
    if seen.bitstream_id != started.program_image:
        raise errors.ProgramFailed(
            uuid=seen.uuid, why='it was programmed anew before it could be seen how that ended.')
    return False


def _pending(arqs: Sequence[objects.Arq]) -> bool:
    """Is one of them still on its way? BindFailed if one will not arrive."""
    for arq in arqs:
        if arq.state != State.BOUND and arq.state not in PENDING:
            raise errors.BindFailed(
                why=arq.given('reason') or f'accelerator request {arq.uuid} is {arq.state}.')
    return any(arq.state in PENDING for arq in arqs)
