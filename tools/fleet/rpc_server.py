# SPDX-License-Identifier: Apache-2.0
"""An RPC server that listens on the queues of many hosts over one connection.

oslo.messaging gives each server its own connection and threads. Its listener can consume from any
number of queues, so here each host has its own queue, as a real agent does, and all share the
connection and the threads.
"""

import functools
from collections.abc import Mapping
from typing import Any

import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver, base
from oslo_messaging._drivers import common as driver_common
from oslo_messaging.rpc import server

from cyborg import rpc
from cyborg.agent import endpoints
from tools.fleet.host import FleetHost


class ConductorCasts:
    """Receives the casts of conductors, each with the name of its host."""

    target = endpoints.AgentEndpoint.target

    def __init__(self, hosts: Mapping[str, FleetHost]) -> None:
        self._agents = {
            name: endpoints.AgentEndpoint(host, host.worker) for name, host in hosts.items()
        }

    def perform(self, context: Any, hostname: str, tasks: list[Any]) -> None:
        self._agents[hostname].perform(context, tasks)

    def wake(self, context: Any, hostname: str) -> None:
        self._agents[hostname].wake(context)


class SharedRpcServer(server.RPCServer):
    """Listens on the queues of all hosts."""

    def __init__(self, transport: Any, hosts: Mapping[str, FleetHost]) -> None:
        self._hosts = hosts
        dispatcher = messaging.RPCDispatcher(
            [ConductorCasts(hosts)], rpc.ContextSerializer(), messaging.DefaultRPCAccessPolicy
        )
        super().__init__(
            transport,
            messaging.Target(topic=rpc.topic(transport, rpc.AGENT), server='fleet'),
            dispatcher,
        )

    def _create_listener(self) -> Any:
        driver = self.transport._driver  # noqa: SLF001
        connection = driver._get_connection(driver_common.PURPOSE_LISTEN)  # noqa: SLF001
        listener = amqpdriver.RpcAMQPListener(driver, connection)
        exchange = driver._get_exchange(self._target)  # noqa: SLF001
        for name in self._hosts:
            connection.declare_topic_consumer(
                exchange_name=exchange,
                topic=f'{self._target.topic}.{name}',
                callback=functools.partial(_add_hostname, listener, name),
            )
        return base.PollStyleListenerAdapter(listener, 1, None)


def _add_hostname(listener: Any, name: str, message: Any) -> None:
    """Add the host's name to the arguments: a message does not contain its queue."""
    message['args']['hostname'] = name
    listener(message)
