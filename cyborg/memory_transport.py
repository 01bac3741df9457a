# SPDX-License-Identifier: Apache-2.0
"""Messages inside one process that arrive at once and cost nothing while there are none.

kombu's own memory transport is polled, and oslo.messaging polls it without a pause: a core for
each listener. Here a listener sleeps until something was put into a queue.
"""

import queue
import threading
import time
from typing import Any

from kombu import transport
from kombu.transport import memory

#: seconds after which a listener looks up, to see whether it should stop
NAP = 0.1


class Arrivals:
    """Counts messages, so that nobody sleeps through one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.count = 0

    def announce(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, seen: int, timeout: float) -> bool:
        """Sleep until there was one after the ``seen`` first."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count != seen, timeout)


ARRIVALS = Arrivals()


class Channel(memory.Channel):
    """Says when it has put something."""

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)
        ARRIVALS.announce()

    def _put_fanout(self, exchange: str, message: Any, routing_key: Any = None,
                    **kwargs: Any) -> None:
        super()._put_fanout(exchange, message, routing_key, **kwargs)
        ARRIVALS.announce()


class Transport(memory.Transport):
    """Waits instead of polling."""

    Channel = Channel

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        end = time.monotonic() + min(NAP, timeout if timeout is not None else NAP)
        while True:
            seen = ARRIVALS.count
            try:
                self.cycle.get(self._deliver, timeout=timeout)
                return
            except queue.Empty:
                left = end - time.monotonic()
                if left <= 0 or not ARRIVALS.wait(seen, left):
                    raise TimeoutError from None  # alias socket.timeout, which kombu knows


def install() -> None:
    """Have ``memory://`` mean this transport, in this process."""
    transport.TRANSPORT_ALIASES['memory'] = f'{__name__}:Transport'
