# SPDX-License-Identifier: Apache-2.0
"""A kombu transport inside one process, for the all-in-one mode and tests.

kombu has a memory transport that must be polled. oslo.messaging polls it without a pause, so that
each listener uses a whole core. With this one a listener sleeps until a message arrives.
"""

import queue
import threading
import time
from typing import Any

from kombu import transport
from kombu.transport import memory
from kombu.utils import scheduling

#: seconds after which a sleeping listener checks whether it should stop
MAX_SLEEP = 0.1


class Arrivals:
    """Counts messages, so that a listener does not miss one that arrives before it sleeps."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def announce(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> bool:
        """Return whether the count has changed from ``seen``, after ``timeout`` seconds at most."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count != seen, timeout)


ARRIVALS = Arrivals()


class Channel(memory.Channel):
    """Announces each message that is put into a queue."""

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)
        ARRIVALS.announce()

    def _put_fanout(
        self, exchange: str, message: Any, routing_key: Any = None, **kwargs: Any
    ) -> None:
        super()._put_fanout(exchange, message, routing_key, **kwargs)
        ARRIVALS.announce()


class Transport(memory.Transport):
    """Waits for announcements instead of polling."""

    Channel = Channel
    cycle: scheduling.FairCycle  #: of which the class has none, and each object one

    # what kombu calls is this method of its virtual transports, which has no hints; mypy compares
    # with the one of all transports
    def drain_events(  # type: ignore[override]
        self, connection: Any, timeout: float | None = None
    ) -> None:
        end = time.monotonic() + min(MAX_SLEEP, timeout if timeout is not None else MAX_SLEEP)
        while True:
            seen = ARRIVALS.count
            try:
                self.cycle.get(self._deliver, timeout=timeout)
                return
            except queue.Empty:
                left = end - time.monotonic()
                if left <= 0 or not ARRIVALS.wait(seen, left):
                    raise TimeoutError from None  # is socket.timeout, which kombu expects


def install() -> None:
    """Use this transport for ``memory://`` URLs in this process."""
    transport.TRANSPORT_ALIASES['memory'] = f'{__name__}:Transport'
