# SPDX-License-Identifier: Apache-2.0
"""The thread pool of an agent: one job at a time per card, several cards in parallel."""

import collections
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from oslo_log import log

LOG = log.getLogger(__name__)

Job = Callable[[], None]


class Pool(Protocol):
    """Runs jobs."""

    def submit(
        self, card: Hashable, delay: float, job: Callable[..., None], *arguments: Any
    ) -> None:
        """Run a job after ``delay`` seconds, and never in parallel with another of its card."""

    def stop(self) -> None:
        """Return when running jobs have ended; waiting jobs are dropped."""


class Threads:
    """A pool of ``count`` threads, and timers for delayed jobs.

    A card uses one thread at most, however many jobs it has, so that a card that hangs does not
    block the others.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._is_stopping = False
        #: card whose job runs or waits for a thread -> the jobs that follow it
        self._following: dict[Hashable, collections.deque[Job]] = {}
        self._threads = concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix='work')

    def submit(
        self, card: Hashable, delay: float, job: Callable[..., None], *arguments: Any
    ) -> None:
        if delay:
            timer = threading.Timer(delay, self.submit, [card, 0.0, job, *arguments])
            timer.daemon = True
            timer.start()
            return
        bound = functools.partial(job, *arguments)
        with self._lock:
            if card in self._following:
                self._following[card].append(bound)
            elif not self._is_stopping:
                self._following[card] = collections.deque()
                self._threads.submit(self._run, card, bound)

    def _run(self, card: Hashable, job: Job) -> None:
        try:
            job()
        except Exception:
            LOG.exception('A job on %s failed unexpectedly.', card)
        with self._lock:
            following = self._following[card]
            if following and not self._is_stopping:
                # queued behind the waiting jobs of other cards
                self._threads.submit(self._run, card, following.popleft())
            else:
                del self._following[card]

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
        self._threads.shutdown(wait=True, cancel_futures=True)
