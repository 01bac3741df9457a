# SPDX-License-Identifier: Apache-2.0
"""Where an agent's work runs: one job at a time on a card, several cards side by side."""

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
    """Where jobs run."""

    def submit(self, card: Hashable, delay: float, job: Callable[..., None],
               *arguments: Any) -> None:
        """Run a job, not before so many seconds have passed, and never beside another job of
        the same card."""

    def stop(self) -> None:
        """Finish the jobs that run, and drop those that wait."""


class Threads:
    """So many threads, and timers for jobs that must wait.

    A card uses one thread at most, however many jobs it has, so that one that hangs leaves the
    other threads to its neighbours.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._is_stopping = False
        #: cards with a job that runs, or waits for a thread -> the jobs that follow it
        self._following: dict[Hashable, collections.deque[Job]] = {}
        self._threads = concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix='work')

    def submit(self, card: Hashable, delay: float, job: Callable[..., None],
               *arguments: Any) -> None:
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
                # behind the jobs of other cards that wait for a thread
                self._threads.submit(self._run, card, following.popleft())
            else:
                del self._following[card]

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
        self._threads.shutdown(wait=True, cancel_futures=True)
