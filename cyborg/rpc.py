# SPDX-License-Identifier: Apache-2.0
"""Messages: transport, serializer, clients and servers, made one way for every process."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import oslo_messaging as messaging
from kombu import exceptions as kombu_errors
from oslo_config import cfg
from oslo_log import log
from oslo_messaging import transport as messaging_transport

from cyborg import context, errors, memory_transport, objects

LOG = log.getLogger(__name__)

EXCHANGE = 'cyborg'
CONDUCTOR = 'conductor'
AGENT = 'agent'
#: apart from what else conductors are told, so that no caller ever waits behind them
HEARTBEATS = 'heartbeats'
#: how often to try to send a message, at growing intervals, before the broker counts as away;
#: otherwise whoever sends would hang until it is back
TRIES = 3
#: what a broker says that is there and will not have us: a wrong user, password or virtual host,
#: a user who may not make queues, a queue of another kind
REFUSALS = kombu_errors.ChannelError, kombu_errors.ConnectionError
#: seconds before a broker that refused us is asked again
PAUSE = 10


class ContextSerializer(messaging.Serializer):
    """Our objects in the arguments, our context beside them."""

    def __init__(self) -> None:
        self._objects = objects.Serializer()

    def serialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return self._objects.serialize_entity(ctxt, entity)

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return self._objects.deserialize_entity(ctxt, entity)

    def serialize_context(self, ctxt: Any) -> dict[str, Any]:
        return ctxt if isinstance(ctxt, dict) else ctxt.to_dict()

    def deserialize_context(self, ctxt: dict[str, Any]) -> context.RequestContext:
        return context.RequestContext.from_dict(ctxt)


def transport(conf: cfg.ConfigOpts) -> Any:
    """The process's transport. ``conf`` is cfg.CONF: oslo.messaging reads global options too."""
    messaging.set_transport_defaults(EXCHANGE)
    memory_transport.install()
    made = messaging.get_rpc_transport(conf, allowed_remote_exmods=[errors.__name__])
    if _is_default(conf, 'transport_url'):  # that would be a guest's on this very machine
        raise errors.ConfigError(
            why='There is no message broker to use: set [DEFAULT] transport_url.')
    return made


def _is_default(conf: cfg.ConfigOpts, name: str) -> bool:
    location = conf.get_location(name)
    return location is None or location.location is cfg.Locations.opt_default


def notification_transport(conf: cfg.ConfigOpts) -> Any:
    """The way of notifications, which may be another broker's."""
    messaging.set_transport_defaults(EXCHANGE)
    memory_transport.install()
    return messaging.get_notification_transport(conf)


def topic(transport: Any, whose: str) -> str:
    """Queues are shared by a whole broker, so that their names tell two Cyborgs apart."""
    return f'{transport.conf.control_exchange}-{whose}'


class _ExpiringTransport(messaging_transport.RPCTransport):
    """Has the broker drop what nobody has taken in time. oslo.messaging does so with calls, whose
    caller waits no longer; for casts its client does not ask, though its drivers know how."""

    def __init__(self, transport: Any, expiry: float) -> None:
        super().__init__(transport._driver)  # noqa: SLF001
        self._expiry = expiry

    def _send(self, *arguments: Any, **options: Any) -> Any:
        return super()._send(*arguments, **{'timeout': self._expiry} | options)


class Client:
    """Speaks with conductors or agents, in words of up to a version.

    Whatever keeps the broker from taking a message is a MessageDeliveryFailure. With an expiry,
    in seconds, a cast that nobody takes is dropped by then.
    """

    def __init__(self, transport: Any, whose: str, version: str,
                 expiry: float | None = None) -> None:
        self._whose = whose
        self._client = messaging.get_rpc_client(
            transport if expiry is None else _ExpiringTransport(transport, expiry),
            messaging.Target(topic=topic(transport, whose), version=version),
            version_cap=version, serializer=ContextSerializer(), retry=TRIES - 1)

    def call(self, ctxt: context.RequestContext, method: str, **arguments: Any) -> Any:
        """Ask any of them, and wait for the answer."""
        try:
            with _readable_errors():
                return self._client.call(ctxt, method, **arguments)
        except messaging.MessagingTimeout as error:
            raise messaging.MessagingTimeout(
                f'No {self._whose} answered {method} in time: is one running, and has it the '
                'same [DEFAULT] transport_url?') from error

    def cast(self, ctxt: context.RequestContext, method: str, to: str | None = None,
             **arguments: Any) -> None:
        """Tell the one of that name, or any."""
        client = self._client if to is None else self._client.prepare(server=to)
        with _readable_errors():
            client.cast(ctxt, method, **arguments)


@contextlib.contextmanager
def _readable_errors() -> Iterator[None]:
    """A connection that cannot be made fails in the words of a library below oslo.messaging."""
    try:
        yield
    except kombu_errors.OperationalError as error:
        raise messaging.MessageDeliveryFailure(f'The broker is away: {error}') from error
    except REFUSALS as error:
        raise messaging.MessageDeliveryFailure(_refusal(error)) from error


def _refusal(error: Exception) -> str:
    why = getattr(error, 'reply_text', '') or str(error)
    return ('The broker refuses us, check [DEFAULT] transport_url and what its user may do: '
            f'{why.rstrip(".")}.')


class Server:
    """Hands each message to the endpoint that has its method, in one of its threads: so many, or
    as many as [DEFAULT] executor_thread_pool_size says."""

    def __init__(self, transport: Any, whose: str, name: str,
                 endpoints: Sequence[object], threads: int | None = None) -> None:
        self._transport, self._endpoints, self._threads = transport, list(endpoints), threads
        self._target = messaging.Target(topic=topic(transport, whose), server=name)
        self._server = self._make()

    def _make(self) -> Any:
        return messaging.get_rpc_server(
            self._transport, self._target, self._endpoints, serializer=ContextSerializer(),
            access_policy=messaging.DefaultRPCAccessPolicy)

    def start(self) -> None:
        """Wait for a broker that is away, or that does not know us yet."""
        while refusal := self._try():
            LOG.error('%s Trying again in %s seconds.', refusal, PAUSE)
            time.sleep(PAUSE)
            self._server = self._make()  # one that failed to start cannot be started again
        LOG.info('Listening for messages to %s as %s.', self._target.topic, self._target.server)

    def _try(self) -> str | None:
        try:
            self._server.start(override_pool_size=self._threads)
        except (*REFUSALS, messaging.MessageDeliveryFailure) as error:  # the last: of a queue
            return _refusal(error)
        return None

    def stop(self) -> None:
        """Take no new message."""
        self._server.stop()

    def wait(self) -> None:
        """Until those that were taken are done with."""
        self._server.wait()
