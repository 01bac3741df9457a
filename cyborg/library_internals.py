# SPDX-License-Identifier: Apache-2.0
"""Private names of oslo.messaging and oslo.service that Cyborg uses, because neither library
offers the same in public.

tests/unit/test_library_internals.py fails when a library changes one of these names, and when it
begins to offer the same in public, so that the code here can be deleted. Six other modules
depend on the inside of a library, and the same tests cover them: cyborg/objects/base.py
(oslo.versionedobjects), cyborg/in_process_transport.py (kombu), cyborg/cmd/api.py (waitress),
cyborg/clients/embedded_placement.py (Placement), cyborg/clients/keystone.py (openstacksdk) and
cyborg/api/middleware/auth_token.py (keystonemiddleware).
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg
from oslo_messaging import transport as messaging_transport
from oslo_messaging._drivers import amqpdriver, common, impl_rabbit

from cyborg import call_monitor

#: seconds between two signs of life; oslo.messaging sends none at shorter intervals
SHORTEST_INTERVAL = 1


class ExpiringTransport(messaging_transport.RPCTransport):
    """Sends casts that the broker drops if no server takes them within ``expiry`` seconds.

    The drivers of oslo.messaging support an expiry for every message, but its client passes one
    for calls only.
    """

    def __init__(self, transport: Any, expiry: float) -> None:
        super().__init__(transport._driver)  # noqa: SLF001
        self._expiry = expiry

    def _send(self, *arguments: Any, **options: Any) -> Any:
        return super()._send(*arguments, **{'timeout': self._expiry} | options)


class _Queueing(threading.local):
    """For how many seconds the messages of this thread may wait in a queue."""

    seconds: float | None = None


_QUEUEING = _Queueing()


class _Connection(common.ConnectionContext):
    """A connection that limits how long a message waits in a queue."""

    def topic_send(self, *, timeout: float | None = None, **options: Any) -> None:
        limits = [each for each in (timeout, _QUEUEING.seconds) if each is not None]
        self.connection.topic_send(timeout=min(limits, default=None), **options)


def limit_queueing(transport: Any) -> None:
    """Make ``queueing_for`` effective for a transport.

    The client of oslo.messaging lets a call wait in the queue as long as the whole call may take.
    A monitored caller gives up earlier if no server takes the call, and nobody must perform the
    call after that.
    """
    driver = transport._driver  # noqa: SLF001

    def get_connection(purpose: str = common.PURPOSE_SEND, retry: int | None = None) -> Any:
        return _Connection(driver._connection_pool, purpose=purpose, retry=retry)  # noqa: SLF001

    driver._get_connection = get_connection  # noqa: SLF001


@contextlib.contextmanager
def queueing_for(seconds: float | None) -> Iterator[None]:
    """Have the broker drop a message of this thread that no server takes within that time."""
    _QUEUEING.seconds = seconds
    try:
        yield
    finally:
        _QUEUEING.seconds = None


def open_reply_queue(transport: Any) -> None:
    """Create the queue in which this process receives answers, unless it exists.

    oslo.messaging does so during the first call.
    """
    transport._driver._get_reply_q()  # noqa: SLF001


def set_rabbit_defaults(**defaults: int | str) -> None:
    """Set the defaults of options in [oslo_messaging_rabbit].

    oslo.messaging has a public function for the control exchange only.
    """
    cfg.set_defaults(impl_rabbit.rabbit_opts, **defaults)


def register_rabbit_options(conf: cfg.ConfigOpts) -> None:
    """Register what [oslo_messaging_rabbit] has, as the driver does when it connects.

    The public list has copies of these options. A copy whose default is not the driver's own keeps
    the driver from registering its options afterwards.
    """
    conf.register_opts(impl_rabbit.rabbit_opts, group='oslo_messaging_rabbit')


def remember_missing_reply_queues_for(seconds: float) -> None:
    """Limit how long servers that start after this send nothing to a reply queue that was missing.

    oslo.messaging drops all answers to a queue for a minute after one answer could not be sent for
    [oslo_messaging_rabbit] kombu_missing_consumer_retry_timeout seconds. The time without a broker
    counts. So a caller that connects to a returned broker after the server does gets no answers for
    a minute, although its queue exists.
    """
    amqpdriver.ObsoleteReplyQueuesCache.TTL = seconds


def pause_idle_listeners_for(seconds: float) -> None:
    """Set the first pause after which an idle listener looks for acknowledgements to be sent; each
    following pause is twice as long.

    oslo.messaging begins with a millisecond, so that a listener wakes up six times in the 50 ms
    after each message. A conductor spends a fifth of its time with that, for nothing: calls and
    answers are acknowledged as they are received, and Cyborg listens to nothing else.
    """
    amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN = seconds


def monitor_calls(server: Any, monitor: call_monitor.Monitor) -> None:
    """Have ``monitor`` send the signs of life for the calls of a server.

    oslo.messaging starts a thread for each monitored call, and does not end that of a call of
    a method or version that the server does not have.
    """
    dispatcher = server.dispatcher
    dispatch = dispatcher.dispatch

    def dispatch_monitored(incoming: Any) -> Any:
        interval = (incoming.client_timeout or 0) / 2
        if interval < SHORTEST_INTERVAL:  # not monitored, or oslo.messaging complains about it
            return dispatch(incoming)
        incoming.client_timeout = None  # oslo.messaging starts no thread then
        call = monitor.begin(incoming, interval)
        try:
            return dispatch(incoming)
        finally:
            monitor.end(call)

    dispatcher.dispatch = dispatch_monitored


def mutate_in_place(launcher: Any, conf: cfg.ConfigOpts) -> None:
    """Make running workers read mutable options again on SIGHUP.

    Without this the launcher stops each worker on SIGHUP and starts another, and requests that
    arrive in between fail.
    """

    def set_reload(service_id: Any, worker_id: int, worker: Any) -> None:
        worker.reload = conf.mutate_config_files

    launcher._manager.register_hooks(on_new_worker=set_reload)  # noqa: SLF001
