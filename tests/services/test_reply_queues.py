# SPDX-License-Identifier: Apache-2.0
"""Answers to callers whose reply queue was away, as it is after a restart of the broker."""

import kombu
import oslo_messaging as messaging
import pytest
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import common as driver_common

from cyborg import context, rpc
from cyborg.cmd import startup
from cyborg.conductor.endpoint import Endpoint
from tests.fixtures.cloud import eventually

#: seconds; oslo.messaging by itself sends no answers for 60
PATIENCE = 40


class Conductor:
    target = Endpoint.target

    def list_agents(self, context, filters, page):
        return []


@pytest.fixture
def conf(tmp_path, broker):
    options = tmp_path / 'cyborg.conf'
    options.write_text(
        f'[DEFAULT]\ntransport_url = {broker.url}\ncontrol_exchange = {tmp_path.name}\n'
        '[oslo_messaging_rabbit]\nkombu_missing_consumer_retry_timeout = 1\n'
    )
    startup.CONF.reset()
    yield startup.configure(['--config-file', str(options)], default_config_files=[])
    startup.CONF.reset()


@pytest.fixture
def transports(conf):
    """The transports of a conductor and of an API."""
    made = rpc.transport(conf), rpc.transport(conf)
    yield made
    for each in made:
        each.cleanup()


class Api:
    """Calls a conductor, and can lose its reply queue."""

    def __init__(self, transport, broker):
        self._driver, self._broker = transport._driver, broker
        self._client = rpc.Client(transport, rpc.CONDUCTOR, limits=rpc.Limits(silence=2))

    def is_answered(self):
        try:
            return self._client.call(context.internal(), 'list_agents', filters={}, page={}) == []
        except messaging.MessagingTimeout:
            return False

    def lose_queue(self):
        """The broker has forgotten the queue, and the API is not connected yet."""
        self._driver._waiter.stop()
        with kombu.Connection(self._broker.url.replace('rabbit', 'amqp', 1)) as connection:
            connection.channel().queue_delete(self._driver._reply_q)

    def connect_again(self):
        conn = self._driver._get_connection(driver_common.PURPOSE_LISTEN)
        self._driver._waiter = amqpdriver.ReplyWaiter(self._driver._reply_q, conn, [])
        self._driver._reply_q_conn = conn


def test_a_caller_that_connects_later_than_a_conductor_gets_answers_soon(
    broker, transports, caplog
):
    server = rpc.Server(transports[0], rpc.CONDUCTOR, 'conductor1', [Conductor()])
    server.start()
    try:
        api = Api(transports[1], broker)
        eventually(api.is_answered)
        # given a conductor that could not send an answer
        api.lose_queue()
        assert not api.is_answered()
        eventually(lambda: "doesn't exist, drop reply" in caplog.text, PATIENCE)
        # when the queue is there again
        api.connect_again()
        # then it is used again
        eventually(api.is_answered, PATIENCE)
    finally:
        server.stop()
        server.wait()
