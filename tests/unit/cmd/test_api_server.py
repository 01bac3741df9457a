# SPDX-License-Identifier: Apache-2.0
"""The API's own little server, above all how it ends."""

import concurrent.futures
import socket
import threading

import pytest
import requests

from cyborg.cmd import api
from tests.fixtures.cloud import eventually


class Slow:
    """An application that answers when it is told to, a lot."""

    body = b'x' * 4_000_000  # more than sockets hold, so that it is sent bit by bit

    def __init__(self):
        self.asked, self.may_answer = threading.Semaphore(0), threading.Event()

    def __call__(self, environ, start_response):
        self.asked.release()
        self.may_answer.wait(60)
        start_response('200 OK', [('Content-Length', str(len(self.body)))])
        return [self.body]


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def server(slow):
    server = api.Server(slow, '127.0.0.1', 0, threads=1)
    server.start()
    return server


def channels(server):
    return list(server._server.active_channels.values())


def test_what_was_accepted_is_answered_to_the_last_byte(server, slow):
    # given one request that is being served, one that waits for the only thread, and a caller
    # who keeps his connection for later
    with concurrent.futures.ThreadPoolExecutor() as pool, requests.Session() as idle:
        slow.may_answer.set()
        idle.get(server.url)
        slow.may_answer.clear()
        assert slow.asked.acquire(timeout=60)
        answers = [pool.submit(requests.get, server.url) for _ in range(2)]
        assert slow.asked.acquire(timeout=60)
        eventually(lambda: len(channels(server)) == 3)
        # when it is told to stop meanwhile
        stopped = pool.submit(server.stop)
        server._is_closed.wait(60)
        slow.may_answer.set()
        # then both get all of their answer, and nobody else gets in
        assert [len(answer.result().content) for answer in answers] == [len(slow.body)] * 2
        stopped.result()
    with pytest.raises(requests.ConnectionError):
        requests.get(server.url)


def test_a_caller_who_does_not_finish_his_request_does_not_hold_it_up(server, monkeypatch):
    monkeypatch.setattr(api, 'LINGER', 0)
    host, port = server.url.removeprefix('http://').split(':')
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(b'POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n12345')
        eventually(lambda: [each for each in channels(server) if each.request])
        server.stop()
    assert not channels(server)


def test_what_a_proxy_says_reaches_the_pipeline():
    seen = {}

    def application(environ, start_response):
        seen.update(environ)
        start_response('204 No Content', [])
        return []

    server = api.Server(application, '127.0.0.1', 0, threads=1)
    server.start()
    requests.get(
        server.url, headers={'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'cloud.example'}
    )
    server.stop()
    assert (seen['HTTP_X_FORWARDED_PROTO'], seen['HTTP_X_FORWARDED_HOST']) == (
        'https',
        'cloud.example',
    )
    # and is not believed before that
    assert (seen['wsgi.url_scheme'], seen['REMOTE_ADDR']) == ('http', '127.0.0.1')


def test_a_body_that_would_fill_the_disk_is_not_waited_for(slow):
    server = api.Server(slow, '127.0.0.1', 0, threads=1)
    server.start()
    host, port = server.url.removeprefix('http://').split(':')
    with socket.create_connection((host, int(port))) as caller:
        caller.sendall(b'POST / HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n')
        assert caller.recv(100).startswith(b'HTTP/1.1 413 ')
    server.stop()
    assert not slow.asked.acquire(blocking=False)
