# SPDX-License-Identifier: Apache-2.0
"""Waits until hosts have performed the tasks of a request, up to a limit."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log

from cyborg import errors, objects
from cyborg.context import RequestContext
from os_acc.polling import Clock, attempts

LOG = log.getLogger(__name__)

PAUSES = 0.05, 0.5  #: seconds: the first, and the longest


def leave_a_thread(conf: cfg.ConfigOpts, threads: int, remedy: str) -> None:
    """Leave at least one thread of a process to requests that do not wait for hosts.

    :param remedy: how to get more threads; the log goes on with "than [api] max_waiting_binds"
    """
    wanted = conf.api.max_waiting_binds
    if wanted < threads:
        return
    LOG.warning(
        'Requests that this process serves at a time: %d, of which %d may wait for hosts. '
        '%s than [api] max_waiting_binds = %d.',
        threads,
        threads - 1,
        remedy,
        wanted,
    )
    conf.set_override('max_waiting_binds', threads - 1, 'api')


class Waiter:
    """Lets a few requests wait at a time: each holds a thread that others could use."""

    def __init__(
        self,
        conductor: Any,
        longest: float,
        at_a_time: int,
        clock: Clock | None = None,
    ) -> None:
        self._conductor, self._longest = conductor, longest
        self._places = threading.Semaphore(at_a_time)
        self._clock: Clock = clock or time

    def bind(self, context: RequestContext, bindings: Sequence[objects.Binding]) -> None:
        """Bind, and wait for the result. A bind is repeated while the only handles are being
        cleaned: a client that deletes a server and creates another one is faster than the host.
        """
        begin = self._clock.monotonic()
        started: list[objects.Arq] | None = None
        refusal: errors.HandleNotClean | messaging.MessagingException | None = None

        def is_over() -> bool:
            nonlocal started, refusal
            try:
                waited = self._clock.monotonic() - begin
                started = self._conductor.bind_arqs(context, bindings, waited)
            except errors.HandleNotClean as error:
                refusal = error
                return False
            except messaging.MessagingException as error:
                refusal = error  # it is not known whether the requests are bound
            return True

        if not is_over():
            self._wait(is_over, f'the bind of {bindings[0].arq_uuid}', begin)
        if started is None:
            raise refusal  # type: ignore[misc]
        self.wait_for_bind(context, started, begin)

    def wait_for_bind(
        self, context: RequestContext, arqs: Sequence[objects.Arq], begin: float | None = None
    ) -> None:
        """Return when all requests are bound or the time is up. Raises BindFailed if a bind fails
        before that."""
        if objects.are_bound(arqs):
            return
        uuids = [arq.uuid for arq in arqs]

        def is_over() -> bool:
            found = self._conductor.list_arqs(context, {'uuid': uuids}, {})
            if missing := set(uuids) - {arq.uuid for arq in found}:
                raise errors.ArqNotFound(uuids=', '.join(sorted(missing)))
            return objects.are_bound(found)

        self._wait(is_over, f'the bind of {", ".join(uuids)}', begin)

    def program(
        self, context: RequestContext, uuid: str, image_uuid: str
    ) -> tuple[objects.Deployable, bool]:
        """Load an image. Returns the deployable when the image is loaded or the time is up, and
        whether it is loaded. Raises ProgramFailed if it was not loaded."""
        begin = self._clock.monotonic()
        started = seen = self._conductor.program_deployable(context, uuid, image_uuid)
        is_loaded = not started.is_programming

        def is_over() -> bool:
            nonlocal seen, is_loaded
            # only one call: each may take as long as its own limit
            if seen.program_task_uuid != started.program_task_uuid:
                # the deployable tells of an image that somebody has had loaded since
                is_loaded = self._is_programmed(context, started)
            else:
                seen = self._seen(context, started)
                is_loaded = not seen.is_programming and (
                    seen.program_task_uuid == started.program_task_uuid
                )
            return is_loaded

        self._wait(is_over, f'the programming of {uuid}', begin)
        return seen, is_loaded

    def _seen(self, context: RequestContext, started: objects.Deployable) -> objects.Deployable:
        """Returns the deployable as it is. Raises ProgramFailed if the image was not loaded."""
        try:
            seen: objects.Deployable = self._conductor.get_deployable(context, started.uuid)
        except errors.DeployableNotFound as error:
            raise errors.ProgramFailed(
                uuid=started.uuid, why='it was removed meanwhile.'
            ) from error
        is_of_started = seen.program_task_uuid == started.program_task_uuid
        if is_of_started and not seen.is_programming and seen.program_error is not None:
            raise errors.ProgramFailed(uuid=seen.uuid, why=seen.program_error)
        return seen

    def _is_programmed(self, context: RequestContext, started: objects.Deployable) -> bool:
        """Returns whether the image was loaded, although another one may be there now. Raises
        ProgramFailed if that has failed."""
        try:
            return bool(self._conductor.is_programmed(context, started.program_task_uuid))
        except errors.IncompatibleRelease as error:
            raise errors.ProgramFailed(
                uuid=started.uuid, why='another image was loaded before the result could be read.'
            ) from error

    def _wait(self, is_over: Callable[[], bool], what: str, begin: float | None) -> None:
        """Call ``is_over`` until it returns True or the time is up. Returns at once if too many
        requests wait already.

        ``begin`` is the start of the time limit; None: now.
        """
        if not self._places.acquire(blocking=False):
            return
        try:
            now = self._clock.monotonic()
            left = self._longest - (now - (now if begin is None else begin))
            for _ in attempts(left, PAUSES, is_first_at_once=False, clock=self._clock):
                if is_over():
                    return
        except messaging.MessagingException:
            # the operation itself does not depend on this call
            LOG.warning('Cannot see the progress of %s.', what)
        finally:
            self._places.release()
