# SPDX-License-Identifier: Apache-2.0
"""Signs of life to callers who monitor their calls.

oslo.messaging starts a thread for each monitored call, although most calls end long before the
first sign of life is due. Here one thread waits for all calls of a server.
"""

import threading
import time
from typing import Any

from oslo_log import log

LOG = log.getLogger(__name__)


class Call:
    """A call that a server processes. ``interval``: seconds between two signs of life."""

    def __init__(self, incoming: Any, interval: float) -> None:
        self._incoming, self._interval = incoming, interval
        self.due = time.monotonic() + interval
        self._sender: threading.Thread | None = None

    def start_sending(self) -> None:
        """Send signs of life in a thread of their own: one of them may have to wait for a broker
        for a minute."""
        self._is_over = threading.Event()
        sender = threading.Thread(target=self._send, name='signs-of-life', daemon=True)
        sender.start()
        self._sender = sender

    def stop_sending(self) -> None:
        """Return when no sign of life is sent any more."""
        if self._sender is not None:
            self._is_over.set()
            self._sender.join()

    def _send(self) -> None:
        is_over = False
        while not is_over:
            try:
                self._incoming.heartbeat()
            except Exception as error:  # the broker or the caller is away, so nobody waits for it
                LOG.debug('A sign of life could not be sent: %s', error)
                return
            is_over = self._is_over.wait(self._interval)


class Monitor:
    """The calls that a server processes.

    Its thread wakes when the sign of life of the oldest call would be due, not at each call. If
    there are no calls then, it ends.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: calls for which no sign of life was sent
        self._calls: set[Call] = set()
        #: when the thread wakes; None: there is no thread
        self._wakes_at: float | None = None

    def begin(self, incoming: Any, interval: float) -> Call:
        """Send signs of life for a call until it ends."""
        call = Call(incoming, interval)
        with self._changed:
            self._calls.add(call)
            if self._wakes_at is None:
                threading.Thread(target=self._run, name='call-monitor', daemon=True).start()
                self._wakes_at = call.due
            elif call.due < self._wakes_at:
                self._wakes_at = call.due
                self._changed.notify()
        return call

    def end(self, call: Call) -> None:
        """Send no more signs of life for a call."""
        with self._changed:
            self._calls.discard(call)
        call.stop_sending()

    def _run(self) -> None:
        with self._changed:
            try:
                while self._wakes_at is not None:
                    self._changed.wait(self._wakes_at - time.monotonic())
                    self._wake()
            finally:
                self._wakes_at = None

    def _wake(self) -> None:
        now = time.monotonic()
        for call in [each for each in self._calls if each.due <= now]:
            self._calls.discard(call)
            call.start_sending()
        self._wakes_at = min((call.due for call in self._calls), default=None)
