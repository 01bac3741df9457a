# SPDX-License-Identifier: Apache-2.0
"""RPC: the transport, the serializer, clients and servers of every process."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Self, TypeVar

import oslo_messaging as messaging
from kombu import exceptions as kombu_errors
from oslo_config import cfg
from oslo_log import log

from cyborg import (
    backoff,
    call_monitor,
    context,
    errors,
    in_process_transport,
    library_internals,
    metrics,
    objects,
    tracing,
)
from cyborg.conf import upgrade_levels
from cyborg.objects import manifests
from cyborg.rpc_versions import Added, VersionChoice

LOG = log.getLogger(__name__)
P = ParamSpec('P')
R = TypeVar('R')

EXCHANGE = 'cyborg'
CONDUCTOR = 'conductor'
AGENT = 'agent'
#: topics of their own, so that no call of the API waits behind what agents send
HEARTBEATS = 'heartbeats'
REPORTS = 'reports'
#: attempts to send a message, at growing intervals, before MessageDeliveryFailure is raised;
#: without a limit the sender would hang until the broker is back
TRIES = 3
#: raised when the broker refuses us: wrong user, password or virtual host, no permission to
#: declare queues, or a queue that exists with other properties
REFUSALS = kombu_errors.ChannelError, kombu_errors.ConnectionError
#: the longest pause, in seconds, between two attempts to listen at a broker that refuses us
LONGEST_PAUSE = 10
#: seconds to wait for a broker at which the queue for answers must be created first
CONNECT_TIMEOUT = 4

#: seconds for which a server sends nothing to a reply queue that was missing
MISSING_QUEUE_PAUSE = 2

#: seconds after a message until its listener wakes up without another one
IDLE_PAUSE = 0.25
#: what a server of an earlier release answers, by the names of its errors
UNSUPPORTED, NO_METHOD = messaging.UnsupportedVersion.__name__, messaging.NoSuchMethod.__name__
#: every version of objects can be read with the same one
SERIALIZERS = {version: objects.Serializer(version) for version in manifests.CHANGES}


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many seconds a caller waits. None: [DEFAULT] rpc_response_timeout decides."""

    #: for a sign of life from the server that has the call, or from one that takes it
    silence: int | None = None
    #: for the answer to a call that changes nothing
    read: float | None = None
    #: attempts to reach a broker that is away; each takes seconds
    tries: int = TRIES

    @classmethod
    def of_api(cls, conf: cfg.ConfigOpts) -> Self:
        return cls(conf.api.call_monitor_timeout, conf.api.read_timeout, tries=2)

    @classmethod
    def of_agent(cls, conf: cfg.ConfigOpts) -> Self:
        return cls(conf.agent.call_monitor_timeout)


class ContextSerializer(messaging.Serializer):
    """Serializes versioned objects, and the request context.

    A client writes arguments in one version. A server, which gives no version, writes each answer
    in the newest version that the caller reads.
    """

    def __init__(self, version: str | None = None) -> None:
        self._version = version

    def serialize_entity(self, ctxt: Any, entity: Any) -> Any:
        version = self._version or manifests.known(getattr(ctxt, 'reads', None))
        return SERIALIZERS[version].serialize_entity(ctxt, entity)

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return SERIALIZERS[manifests.NEWEST].deserialize_entity(ctxt, entity)

    def serialize_context(self, ctxt: Any) -> dict[str, Any]:
        values = ctxt if isinstance(ctxt, dict) else ctxt.to_dict()
        return values | {'reads': manifests.NEWEST} | tracing.outgoing()

    def deserialize_context(self, ctxt: dict[str, Any]) -> context.RequestContext:
        tracing.incoming(ctxt)  # called in the thread that then processes the message
        return context.RequestContext.from_dict(ctxt)


def expecting_errors(method: Callable[P, R]) -> Callable[P, R]:
    """An RPC method whose CyborgErrors the caller gets as they are, and which are not logged as
    faults of the server."""
    told: Callable[P, R] = messaging.expected_exceptions(errors.CyborgError)(method)
    return told


def as_known(error: errors.CyborgError, reads: str | None) -> errors.CyborgError:
    """Returns an error of a class that a caller knows, with the same message: the error itself, or
    one of a base class if the caller's release does not have the class. Otherwise the caller could
    not rebuild the error, and would answer 500.

    :param reads: the newest RPC version that the caller reads; None: the error is not sent
    """
    if reads is None:
        return error
    version = manifests.parsed(reads)
    kinds = (each for each in type(error).__mro__ if issubclass(each, errors.CyborgError))
    kind = next(each for each in kinds if manifests.parsed(each.since) <= version)
    return error if kind is type(error) else kind(error.faultstring)


def transport(conf: cfg.ConfigOpts) -> Any:
    """Return the RPC transport. ``conf`` must be cfg.CONF: oslo.messaging reads global options."""
    messaging.set_transport_defaults(EXCHANGE)
    in_process_transport.install()
    made = messaging.get_rpc_transport(conf, allowed_remote_exmods=[errors.__name__])
    if _is_default(conf, 'transport_url'):  # the default is rabbit://guest@localhost
        raise errors.ConfigError(
            why='There is no message broker to use: set [DEFAULT] transport_url.'
        )
    library_internals.limit_queueing(made)
    library_internals.remember_missing_reply_queues_for(MISSING_QUEUE_PAUSE)
    library_internals.pause_idle_listeners_for(IDLE_PAUSE)
    return made


def _is_default(conf: cfg.ConfigOpts, name: str) -> bool:
    location = conf.get_location(name)
    return location is None or location.location is cfg.Locations.opt_default


def notification_transport(conf: cfg.ConfigOpts) -> Any:
    """Return the transport of notifications, which may use another broker."""
    messaging.set_transport_defaults(EXCHANGE)
    in_process_transport.install()
    return messaging.get_notification_transport(conf)


def topic(transport: Any, whose: str) -> str:
    """Return a topic with the control exchange in its name: two clouds may share a broker."""
    return f'{transport.conf.control_exchange}-{whose}'


def pinned(conf: cfg.ConfigOpts, whose: str) -> str | None:
    """Returns the version of [upgrade_levels] for messages to a kind of service; None for auto.

    Raises ConfigError if this release does not have that version.
    """
    version: str = conf.upgrade_levels[whose]
    if version == upgrade_levels.AUTO:
        return None
    if version not in manifests.CHANGES:
        known = ', '.join(sorted(manifests.CHANGES, key=manifests.parsed))
        raise errors.ConfigError(
            why=f'[upgrade_levels] {whose} = {version}: this release has {known} and '
            f'{upgrade_levels.AUTO}.'
        )
    return version


class Client:
    """Sends messages to conductors or agents.

    Raises MessageDeliveryFailure if the broker does not take a message. With an expiry, in
    seconds, the broker drops a cast that no server has taken by then.

    Calls are monitored if the limits say so: a server that works on a call sends signs of life,
    and a caller that receives none for ``limits.silence`` seconds stops waiting. Either nobody
    has taken the call, or the server died with it.

    A message has the oldest version in which nothing of it is lost, so that as many servers as
    possible understand it, and none that is newer than ``newest()``. If a server refuses a call
    because it is too new, it is sent again in an older version, in which objects lack newer
    fields. A call that needs a newer form of its method is not sent to older servers.

    :param newest: returns the newest version to use
    :param added: arguments of methods that older servers do not have
    :param changed: methods that have other arguments on older servers, with the version in which
        they changed
    """

    def __init__(
        self,
        transport: Any,
        whose: str,
        expiry: float | None = None,
        limits: Limits | None = None,
        *,
        newest: Callable[[], str] = lambda: manifests.NEWEST,
        added: Added | None = None,
        changed: Mapping[str, str] | None = None,
    ) -> None:
        self._whose, self._limits = whose, limits or Limits()
        self._choice = VersionChoice(whose, newest, added or {}, changed or {})
        self._answers = _Answers(transport)
        self._clients = {
            version: messaging.get_rpc_client(
                transport
                if expiry is None
                else library_internals.ExpiringTransport(transport, expiry),
                messaging.Target(topic=topic(transport, whose), version=version),
                version_cap=version,
                serializer=ContextSerializer(version),
                retry=self._limits.tries - 1,
            )
            for version in manifests.CHANGES
        }
        self._longest = float(transport.conf.rpc_response_timeout)

    def call(self, ctxt: context.RequestContext, method: str, **arguments: Any) -> Any:
        """Call any of the servers, once, and return its answer."""
        return self._attempt(ctxt, method, arguments, self._longest)

    def call_repeatably(
        self, ctxt: context.RequestContext, method: str, *, waited: float = 0.0, **arguments: Any
    ) -> Any:
        """Call; repeat the call once if the first one gets no answer.

        The method must have the same effect and answer if it is performed twice. ``waited`` are
        the seconds that the caller has spent already. They are part of the time limit; half of it
        is left in any case.
        """
        longest = max(self._longest - waited, self._longest / 2)
        return self._repeat(ctxt, method, arguments, longest)

    def read(self, ctxt: context.RequestContext, method: str, **arguments: Any) -> Any:
        """Call a method that changes nothing."""
        longest = self._longest if self._limits.read is None else self._limits.read
        return self._repeat(ctxt, method, arguments, min(longest, self._longest))

    def delete(self, ctxt: context.RequestContext, method: str, **arguments: Any) -> None:
        """Call a method that deletes what exists of the things that are named.

        NotFound as the answer to a repetition is not raised: the first call, whose answer was
        lost, may have deleted what is not found. A method that deletes all or none needs another
        way: NotFound does not mean there that nothing is left.
        """
        self._repeat(ctxt, method, arguments, self._longest, expected=(errors.NotFound,))

    def _repeat(
        self,
        ctxt: context.RequestContext,
        method: str,
        arguments: dict[str, Any],
        longest: float,
        expected: tuple[type[Exception], ...] = (),
    ) -> Any:
        deadline = time.monotonic() + longest
        try:
            return self._attempt(ctxt, method, arguments, longest)
        except messaging.MessagingTimeout as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            LOG.warning('%s Asking once more.', error)
        try:
            return self._attempt(ctxt, method, arguments, left)
        except expected:
            return None

    def _attempt(
        self, ctxt: context.RequestContext, method: str, arguments: dict[str, Any], longest: float
    ) -> Any:
        with self._timed(method):
            return self._call(ctxt, method, arguments, longest)

    @contextlib.contextmanager
    def _timed(self, method: str) -> Iterator[None]:
        """Observe a message for the metrics and the trace."""
        with (
            tracing.span('rpc', f'{self._whose}.{method}'),
            metrics.Timer(metrics.RPC_CALLS, self._whose, method) as timer,
        ):
            try:
                yield
            except errors.CyborgError:
                timer.result = 'refused'
                raise
            except messaging.MessagingTimeout:
                timer.result = 'timeout'
                raise
            except messaging.MessageDeliveryFailure:
                timer.result = 'undelivered'
                raise

    def _call(
        self, ctxt: context.RequestContext, method: str, arguments: dict[str, Any], longest: float
    ) -> Any:
        deadline = time.monotonic() + longest
        self._answers.connect(min(longest, CONNECT_TIMEOUT))
        for version in self._choice.versions(method, arguments):
            try:
                return self._send(version, ctxt, method, arguments, deadline)
            except messaging.RemoteError as error:
                if error.exc_type == NO_METHOD:
                    raise errors.IncompatibleRelease(
                        why=f'a {self._whose} does not have {method}. Try again when all of them '
                        'are upgraded.'
                    ) from error
                if error.exc_type != UNSUPPORTED:
                    raise
            self._choice.note_refusal(version)
        if self._choice.oldest(method, arguments) != manifests.OLDEST:
            raise self._older_form_of(method)
        raise errors.IncompatibleRelease(
            why=f'a {self._whose} refuses all RPC versions of this release, '
            f'{manifests.OLDEST} to {manifests.NEWEST}.'
        )

    def _send(
        self,
        version: str,
        ctxt: context.RequestContext,
        method: str,
        arguments: dict[str, Any],
        deadline: float,
    ) -> Any:
        try:
            with _readable_errors(), library_internals.queueing_for(self._limits.silence):
                return (
                    self._clients[version]
                    .prepare(
                        timeout=max(deadline - time.monotonic(), 0.1),
                        call_monitor_timeout=self._limits.silence,
                    )
                    .call(ctxt, method, **arguments)
                )
        except messaging.MessagingTimeout as error:
            raise messaging.MessagingTimeout(
                f'No {self._whose} answered {method} in time: is one running, and has it the '
                'same [DEFAULT] transport_url?'
            ) from error

    def cast(
        self, ctxt: context.RequestContext, method: str, to: str | None = None, **arguments: Any
    ) -> None:
        """Cast to the server of that name, or to any."""
        versions = self._choice.versions(method, arguments, is_cast=True)
        if not versions:
            raise self._older_form_of(method)
        version = versions[0]
        client = self._clients[version] if to is None else self._clients[version].prepare(server=to)
        with self._timed(method), _readable_errors():
            client.cast(ctxt, method, **arguments)

    def _older_form_of(self, method: str) -> errors.IncompatibleRelease:
        return errors.IncompatibleRelease(
            why=f'a {self._whose} has an older form of {method}. Try again when all are upgraded.'
        )


class _Answers:
    """The queue for answers that a process has at its broker.

    oslo.messaging creates it during the first call and waits for the broker without limit,
    whatever the limits of the call are. A thread of its own waits here instead of the caller.
    """

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._lock = threading.Lock()
        self._connecting: threading.Thread | None = None
        self._is_open = False
        self._why_not = 'The broker is away: it does not answer.'

    def connect(self, timeout: float) -> None:
        """Return when the queue exists; raises MessageDeliveryFailure if it takes too long."""
        if self._is_open:
            return
        with self._lock:
            if self._connecting is None or not self._connecting.is_alive():
                self._connecting = threading.Thread(
                    target=self._open, name='rpc-answers', daemon=True
                )
                self._connecting.start()
            connecting = self._connecting
        connecting.join(timeout)
        if not self._is_open:
            raise messaging.MessageDeliveryFailure(self._why_not)

    def _open(self) -> None:
        try:
            with _readable_errors():
                library_internals.open_reply_queue(self._transport)
        except messaging.MessageDeliveryFailure as error:
            self._why_not = str(error)
        except Exception as error:  # of this host; a thread has nobody else to tell
            self._why_not = _local_failure(error)
        else:
            self._is_open = True


@contextlib.contextmanager
def _readable_errors() -> Iterator[None]:
    """Translate the errors of kombu and amqp, which oslo.messaging lets pass."""
    try:
        yield
    except kombu_errors.OperationalError as error:
        raise messaging.MessageDeliveryFailure(f'The broker is away: {error}') from error
    except REFUSALS as error:
        raise messaging.MessageDeliveryFailure(_refusal(error)) from error


def _refusal(error: Exception) -> str:
    why = getattr(error, 'reply_text', '') or str(error)
    return (
        'The broker refuses us, check [DEFAULT] transport_url and what its user may do: '
        f'{why.rstrip(".")}.'
    )


def _local_failure(error: Exception) -> str:
    return f'A queue cannot be created because of an error on this host: {error}'.rstrip('.') + '.'


class Server:
    """Dispatches messages to endpoints in a pool of threads.

    ``threads`` defaults to [DEFAULT] executor_thread_pool_size.
    """

    _pause = staticmethod(time.sleep)

    def __init__(
        self,
        transport: Any,
        whose: str,
        name: str,
        endpoints: Sequence[object],
        threads: int | None = None,
    ) -> None:
        self._transport, self._endpoints, self._threads = transport, list(endpoints), threads
        self._target = messaging.Target(topic=topic(transport, whose), server=name)
        self._monitor = call_monitor.Monitor()
        self._server = self._make()

    def _make(self) -> Any:
        made = messaging.get_rpc_server(
            self._transport,
            self._target,
            self._endpoints,
            serializer=ContextSerializer(),
            access_policy=messaging.DefaultRPCAccessPolicy,
        )
        library_internals.monitor_calls(made, self._monitor)
        return made

    def start(self) -> None:
        """Listen. Retries while the broker is away or refuses us, or a file of this host fails."""
        failures = 0
        while refusal := self._try():
            failures += 1
            pause = backoff.pause(failures, LONGEST_PAUSE)
            LOG.error('%s Trying again in %.0f seconds.', refusal, pause)
            self._pause(pause)
            self._server = self._make()  # a server that failed to start cannot be started again
        LOG.info('Listening for messages to %s as %s.', self._target.topic, self._target.server)

    def _try(self) -> str | None:
        try:
            self._server.start(override_pool_size=self._threads)
        except (
            *REFUSALS,
            messaging.MessageDeliveryFailure,
        ) as error:  # the last: refusal of a queue
            return _refusal(error)
        except OSError as error:  # of this host: the file of the queue manager
            return _local_failure(error)
        return None

    def stop(self) -> None:
        """Take no new message."""
        self._server.stop()

    def wait(self) -> None:
        """Return when all messages that were taken are processed."""
        self._server.wait()
