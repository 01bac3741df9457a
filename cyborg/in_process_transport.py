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
    """Counts the messages for one listener, so that it does not miss one that arrives before it
    sleeps."""

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


class Listeners:
    """Who listens to which queue. A message wakes those of its queue only: a process has a dozen
    listeners, and each of them would need the interpreter to find that nothing is for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: name of a queue -> its listeners, once per consumer; replaced, never changed
        self._arrivals: dict[str, tuple[Arrivals, ...]] = {}

    def add(self, queue: str, arrivals: Arrivals) -> None:
        with self._lock:
            self._arrivals[queue] = *self._arrivals.get(queue, ()), arrivals

    def remove(self, queue: str, arrivals: Arrivals) -> None:
        with self._lock:
            left = list(self._arrivals.pop(queue, ()))
            if arrivals in left:
                left.remove(arrivals)
            if left:
                self._arrivals[queue] = tuple(left)

    def announce(self, queue: str) -> None:
        for arrivals in self._arrivals.get(queue, ()):
            arrivals.announce()


LISTENERS = Listeners()


class Channel(memory.Channel):
    """Announces each message that is put into a queue to those who consume from it."""

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **kwargs: Any
    ) -> None:
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        LISTENERS.add(queue, self.connection.arrivals)
        self.connection.arrivals.announce()  # what the queue holds already

    def basic_cancel(self, consumer_tag: str) -> None:
        if consumer_tag in self._consumers:
            LISTENERS.remove(self._tag_to_queue[consumer_tag], self.connection.arrivals)
        super().basic_cancel(consumer_tag)

    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)
        LISTENERS.announce(queue)

    def _put_fanout(
        self, exchange: str, message: Any, routing_key: Any = None, **kwargs: Any
    ) -> None:
        super()._put_fanout(exchange, message, routing_key, **kwargs)
        for name in self._lookup(exchange, routing_key):
            LISTENERS.announce(name)


class Transport(memory.Transport):
    """Waits for announcements instead of polling."""

    Channel = Channel
    cycle: scheduling.FairCycle  #: of which the class has none, and each object one

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.arrivals = Arrivals()

    # what kombu calls is this method of its virtual transports, which has no hints; mypy compares
    # with the one of all transports
    def drain_events(  # type: ignore[override]
        self, connection: Any, timeout: float | None = None
    ) -> None:
        end = time.monotonic() + min(MAX_SLEEP, timeout if timeout is not None else MAX_SLEEP)
        while True:
            seen = self.arrivals.count
            try:
                self.cycle.get(self._deliver, timeout=timeout)
                return
            except queue.Empty:
                left = end - time.monotonic()
                if left <= 0 or not self.arrivals.wait(seen, left):
                    raise TimeoutError from None  # is socket.timeout, which kombu expects


def install() -> None:
    """Use this transport for the ``memory://`` URLs that are connected to from now on."""
    transport.TRANSPORT_ALIASES['memory'] = f'{__name__}:Transport'
    # kombu looks a name up once; a connection made before this call would decide for all
    transport._transport_cache.pop('memory', None)  # noqa: SLF001
