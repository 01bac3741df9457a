# SPDX-License-Identifier: Apache-2.0
"""Says that an agent lives, whatever else it waits for."""

import threading
from collections.abc import Callable

import oslo_messaging as messaging
from oslo_log import log

LOG = log.getLogger(__name__)


class Heartbeat:
    """A thread of its own: neither a driver nor Placement can delay it."""

    def __init__(self, name: str, interval: float, beat: Callable[[], None]) -> None:
        self._interval = interval
        self._beat = beat
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        pause = self._interval
        while not self._stopping.wait(pause):
            try:
                self._beat()
                pause = self._interval
            except messaging.MessagingException as error:
                pause = min(1.0, self._interval)  # sending itself is tried at growing intervals
                LOG.warning('Could not send a heartbeat: %s', error)
