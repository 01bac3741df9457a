# SPDX-License-Identifier: Apache-2.0
"""Messages: transport, serializer, clients and servers, made one way for every process."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import oslo_messaging as messaging
from kombu import exceptions as kombu_errors
from oslo_config import cfg

from cyborg import context, errors, memory_transport, objects

EXCHANGE = 'cyborg'
CONDUCTOR = 'conductor'
AGENT = 'agent'
#: how often to try to send a message, at growing intervals, before the broker counts as away;
#: otherwise whoever sends would hang until it is back
TRIES = 3


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
    return messaging.get_rpc_transport(conf, allowed_remote_exmods=[errors.__name__])


def notification_transport(conf: cfg.ConfigOpts) -> Any:
    """The way of notifications, which may be another broker's."""
    messaging.set_transport_defaults(EXCHANGE)
    memory_transport.install()
    return messaging.get_notification_transport(conf)


def topic(transport: Any, whose: str) -> str:
    """Queues are shared by a whole broker, so that their names tell two Cyborgs apart."""
    return f'{transport.conf.control_exchange}-{whose}'


class Client:
    """Speaks with conductors or agents, in words of up to a version.

    Whatever keeps the broker from taking a message is a MessageDeliveryFailure.
    """

    def __init__(self, transport: Any, whose: str, version: str) -> None:
        self._client = messaging.get_rpc_client(
            transport, messaging.Target(topic=topic(transport, whose), version=version),
            version_cap=version, serializer=ContextSerializer(), retry=TRIES - 1)

    def call(self, ctxt: context.RequestContext, method: str, **arguments: Any) -> Any:
        """Ask any of them, and wait for the answer."""
        with _readable_errors():
            return self._client.call(ctxt, method, **arguments)

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


def server(transport: Any, whose: str, name: str, endpoints: Sequence[object]) -> Any:
    """A server that hands each message to the endpoint that has its method, in a thread."""
    return messaging.get_rpc_server(
        transport, messaging.Target(topic=topic(transport, whose), server=name),
        list(endpoints), serializer=ContextSerializer(),
        access_policy=messaging.DefaultRPCAccessPolicy)
