# SPDX-License-Identifier: Apache-2.0
"""Sends the heartbeats of an agent."""

import threading
from collections.abc import Callable

import oslo_messaging as messaging
from oslo_log import log

from cyborg import backoff, errors

LOG = log.getLogger(__name__)

LONGEST_PAUSE = 8.0  #: seconds before the next attempt while heartbeats fail


class Heartbeat:
    """Sends heartbeats from its own thread, so that no driver and no slow Placement delays them."""

    def __init__(self, name: str, interval: float, beat: Callable[[], None]) -> None:
        self._interval = interval
        self._beat = beat
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(self._pause(failures)):
            try:
                self._beat()
                failures = 0
            except (errors.CyborgError, messaging.MessagingException) as error:
                failures += 1
                LOG.warning('Could not send a heartbeat: %s', error)
            except Exception:  # whatever fails once, an agent without heartbeats counts as down
                failures += 1
                LOG.exception('Could not send a heartbeat.')

    def _pause(self, failures: int) -> float:
        """Return the seconds until the next heartbeat. After a failure it is sent soon, so that
        the agent does not count as down much longer than the broker is down."""
        if not failures:
            return self._interval
        return backoff.pause(failures, min(LONGEST_PAUSE, self._interval))
