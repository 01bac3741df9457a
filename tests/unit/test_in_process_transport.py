# SPDX-License-Identifier: Apache-2.0
import threading
import time
import uuid

import kombu
import pytest
from kombu.transport import memory

from cyborg import in_process_transport

PATIENCE = 30
MEMORY_TRANSPORT = 'kombu.transport.memory:Transport'


@pytest.fixture
def connect():
    in_process_transport.install()
    made = []

    def connect():
        connection = kombu.Connection('memory://')
        made.append(connection)
        return connection

    yield connect
    for connection in made:
        connection.release()


@pytest.fixture
def name():
    return f'queue-{uuid.uuid4()}'


def listen(connection, name, heard):
    queue = kombu.Queue(name, kombu.Exchange(name, type='direct'), routing_key=name)
    consumer = kombu.Consumer(
        connection.channel(),
        queue,
        callbacks=[lambda body, message: (heard.append(body), message.ack())],
    )
    consumer.consume()
    return consumer


def send(connection, name, body):
    kombu.Producer(connection.channel()).publish(body, exchange=name, routing_key=name)


def drain(connection):
    """Returns whether a message was delivered within a listener's sleep."""
    try:
        connection.drain_events(timeout=PATIENCE)
    except TimeoutError:
        return False
    return True


def test_a_sleeping_listener_wakes_for_a_message_to_its_queue(connect, name, monkeypatch):
    monkeypatch.setattr(in_process_transport, 'MAX_SLEEP', PATIENCE)
    heard, listener = [], connect()
    listen(listener, name, heard)
    thread = threading.Thread(target=drain, args=(listener,))
    thread.start()
    began = time.monotonic()
    send(connect(), name, 'one')
    thread.join()
    assert heard == ['one']
    assert time.monotonic() - began < PATIENCE / 2


def test_connections_made_before_do_not_decide_for_later_ones(monkeypatch):
    monkeypatch.setitem(kombu.transport.TRANSPORT_ALIASES, 'memory', MEMORY_TRANSPORT)
    monkeypatch.setattr(kombu.transport, '_transport_cache', {})
    with kombu.Connection('memory://') as connection:
        assert type(connection.transport) is memory.Transport
    in_process_transport.install()
    with kombu.Connection('memory://') as connection:
        assert type(connection.transport) is in_process_transport.Transport


def test_a_message_wakes_nobody_else(connect, name):
    listener, other = connect(), connect()
    listen(listener, name, [])
    listen(other, f'{name}-other', [])
    before = other.transport.arrivals.count
    send(connect(), name, 'one')
    assert other.transport.arrivals.count == before
    assert drain(listener)


def test_what_a_queue_holds_is_delivered_to_a_new_listener(connect, name):
    first, heard = connect(), []
    consumer = listen(first, name, [])
    consumer.cancel()
    send(connect(), name, 'one')
    second = connect()
    listen(second, name, heard)
    assert drain(second)
    assert heard == ['one']


def test_listeners_of_one_queue_share_its_messages(connect, name):
    heard, listeners = [], [connect(), connect()]
    for listener in listeners:
        listen(listener, name, heard)
    sender = connect()
    for number in range(10):
        send(sender, name, number)
    for number in range(10):
        assert drain(listeners[number % 2])
    assert sorted(heard) == list(range(10))


def test_every_listener_of_a_fanout_gets_its_message(connect, name):
    heard, listeners = [], [connect(), connect()]
    exchange = kombu.Exchange(name, type='fanout')
    for number, listener in enumerate(listeners):
        kombu.Consumer(
            listener.channel(),
            kombu.Queue(f'{name}-{number}', exchange),
            callbacks=[lambda body, message: (heard.append(body), message.ack())],
        ).consume()
    counts = [listener.transport.arrivals.count for listener in listeners]
    kombu.Producer(connect().channel()).publish('all', exchange=name)
    assert [listener.transport.arrivals.count for listener in listeners] == [
        count + 1 for count in counts
    ]
    assert all(map(drain, listeners))
    assert heard == ['all', 'all']


def test_a_listener_that_has_ended_is_forgotten(connect, name):
    listener = connect()
    consumer = listen(listener, name, [])
    assert name in in_process_transport.LISTENERS._arrivals
    consumer.cancel()
    assert name not in in_process_transport.LISTENERS._arrivals
    listen(listener, name, [])
    listener.release()
    assert name not in in_process_transport.LISTENERS._arrivals
