# SPDX-License-Identifier: Apache-2.0
"""One RPC server that listens in the names of many hosts, over one connection.

oslo.messaging gives each server a connection and threads of its own. Its listener does not mind
how many queues it consumes from, so here each host has its queue, as agents have, and all share
the rest.
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
from cyborg.sim.fleet.host import Host


class Conducted:
    """The conductor's casts, each with the name of the host it is for."""

    target = endpoints.Conducted.target

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._agents = {name: endpoints.Conducted(host, host.worker)
                        for name, host in hosts.items()}

    def perform(self, context: Any, hostname: str, tasks: list[Any]) -> None:
        self._agents[hostname].perform(context, tasks)

    def wake(self, context: Any, hostname: str) -> None:
        self._agents[hostname].wake(context)


class Server(server.RPCServer):
    """Listens for all hosts at once."""

    def __init__(self, transport: Any, hosts: Mapping[str, Host]) -> None:
        self._hosts = hosts
        dispatcher = messaging.RPCDispatcher(
            [Conducted(hosts)], rpc.ContextSerializer(), messaging.DefaultRPCAccessPolicy)
        super().__init__(transport, messaging.Target(
            topic=rpc.topic(transport, rpc.AGENT), server='fleet'), dispatcher)

    def _create_listener(self) -> Any:
        driver = self.transport._driver  # noqa: SLF001
        connection = driver._get_connection(driver_common.PURPOSE_LISTEN)  # noqa: SLF001
        listener = amqpdriver.RpcAMQPListener(driver, connection)
        exchange = driver._get_exchange(self._target)  # noqa: SLF001
        for name in self._hosts:
            connection.declare_topic_consumer(
                exchange_name=exchange, topic=f'{self._target.topic}.{name}',
                callback=functools.partial(_name_host, listener, name))
        return base.PollStyleListenerAdapter(listener, 1, None)


def _name_host(listener: Any, name: str, message: Any) -> None:
    """A message does not say whose queue it came from; its arguments now do."""
    message['args']['hostname'] = name
    listener(message)
