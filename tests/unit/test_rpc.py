# SPDX-License-Identifier: Apache-2.0
"""Sending messages when nobody takes them."""

import os
import pathlib
import threading
import time
import types
import uuid

import oslo_messaging as messaging
import pytest
from kombu import exceptions as kombu_errors
from oslo_messaging._drivers import amqpdriver, impl_rabbit

from cyborg import context, errors, rpc
from cyborg.cmd import startup
from cyborg.conductor.rpcapi import HEARTBEAT_EXPIRY, ConductorAPI
from cyborg.objects import manifests


@pytest.fixture
def configured(tmp_path):
    """The configuration of a process, from the text of its file."""

    def parse(text):
        options = tmp_path / 'cyborg.conf'
        options.write_text(f'[DEFAULT]\n{text}\n')
        return startup.configure(['--config-file', str(options)], default_config_files=[])

    startup.CONF.reset()
    yield parse
    startup.CONF.reset()


@pytest.fixture
def client(configured):
    conf = configured('transport_url = rabbit://127.0.0.1:1/')
    return rpc.Client(rpc.transport(conf), rpc.AGENT)


def test_services_connect_again_soon_after_a_broker_is_back(configured):
    conf = configured('transport_url = rabbit://127.0.0.1:1/')
    rpc.transport(conf)
    rabbit = conf.oslo_messaging_rabbit
    assert (rabbit.rabbit_retry_interval, rabbit.rabbit_retry_backoff) == (1, 1)
    assert rabbit.rabbit_interval_max == 3
    assert rabbit.kombu_missing_consumer_retry_timeout == 5
    assert amqpdriver.ObsoleteReplyQueuesCache.TTL == rpc.MISSING_QUEUE_PAUSE


def test_listeners_do_not_wake_up_for_nothing(configured):
    rpc.transport(configured('transport_url = rabbit://127.0.0.1:1/'))
    assert amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MIN == rpc.IDLE_PAUSE


def test_the_configuration_file_decides_how_soon(configured):
    conf = configured(
        'transport_url = rabbit://127.0.0.1:1/\n[oslo_messaging_rabbit]\nrabbit_interval_max = 30'
    )
    rpc.transport(conf)
    assert conf.oslo_messaging_rabbit.rabbit_interval_max == 30


def refused():
    """What a broker says to a user whom it does not know."""
    return kombu_errors.ChannelError('ACCESS_REFUSED - Login was refused.', reply_code=403)


def test_a_broker_that_is_away_is_an_error_and_not_a_wait_for_ever(client):
    with pytest.raises(messaging.MessageDeliveryFailure, match='broker is away'):
        client.cast(context.internal(), 'wake', 'compute1')


def test_a_broker_that_refuses_us_is_told_from_one_that_is_away(client, monkeypatch):
    def refuse(*arguments, **more):
        raise refused()

    monkeypatch.setattr(rpc.library_internals, 'open_reply_queue', refuse)
    with pytest.raises(messaging.MessageDeliveryFailure, match='refuses us.*transport_url.*Login'):
        client.call(context.internal(), 'wake')


@pytest.fixture
def counter():
    """The file of a queue manager, which cannot be opened. Root can open the file of another user,
    but not a directory."""
    file = pathlib.Path(f'/dev/shm/{uuid.uuid4()}_cyborg-agent_qmanager')
    file.mkdir()
    yield file
    file.unlink() if file.is_file() else file.rmdir()


@pytest.fixture
def managed(configured, counter, tmp_path, monkeypatch):
    """A transport whose queues have the names of a queue manager."""
    # it asks when the leader of the process group has started; that of the tests may have ended
    monkeypatch.setattr(os, 'getpgrp', os.getpid)
    host, process, _ = counter.name.split('_')
    return rpc.transport(
        configured(
            'transport_url = kombu+memory:////\n[oslo_messaging_rabbit]\nuse_queue_manager = true\n'
            f'hostname = {host}\nprocessname = {process}\n'
            f'[oslo_concurrency]\nlock_path = {tmp_path}'
        )
    )


def test_an_error_of_this_host_is_told_from_a_broker_that_is_away(managed, counter):
    client = rpc.Client(managed, rpc.CONDUCTOR)
    for _ in range(2):
        with pytest.raises(messaging.MessageDeliveryFailure) as failure:
            client.call(context.internal(), 'list_agents')
        assert str(counter) in str(failure.value)
        assert 'broker is away' not in str(failure.value)


def test_a_server_waits_until_an_error_of_its_host_is_mended(managed, counter, caplog):
    server = rpc.Server(managed, rpc.CONDUCTOR, 'conductor1', [])
    server._pause = lambda seconds: counter.rmdir()
    server.start()
    server.stop()
    server.wait()
    assert str(counter) in caplog.text
    assert 'Traceback' not in caplog.text


@pytest.mark.parametrize(('waited', 'limit'), [(0, 8), (3, 5), (20, 4)])
def test_what_a_caller_has_waited_is_part_of_the_time_limit(configured, monkeypatch, waited, limit):
    client = rpc.Client(
        rpc.transport(configured('transport_url = kombu+memory:////\nrpc_response_timeout = 8')),
        rpc.CONDUCTOR,
    )
    limits = []
    monkeypatch.setattr(
        client, '_call', lambda ctxt, method, arguments, longest: limits.append(longest)
    )
    client.call_repeatably(context.internal(), 'bind_arqs', waited=waited, bindings=[])
    assert limits == [limit]


def test_no_answer_says_who_did_not_give_it(configured):
    conf = configured('transport_url = kombu+memory:////\nrpc_response_timeout = 1')
    transport = rpc.transport(conf)
    client = rpc.Client(transport, rpc.CONDUCTOR)
    with pytest.raises(messaging.MessagingTimeout, match='No conductor answered list_agents'):
        client.call(context.internal(), 'list_agents')
    transport.cleanup()


def test_a_process_without_a_broker_in_its_configuration_says_so(configured):
    with pytest.raises(errors.ConfigError, match='transport_url'):
        rpc.transport(configured(''))


def test_a_server_waits_for_a_broker_that_does_not_know_it_yet(configured, monkeypatch, caplog):
    # given a broker to which our user is added after its third refusal, the last of a queue
    transport = rpc.transport(configured('transport_url = kombu+memory:////'))
    listen = transport._listen
    refusals = [messaging.MessageDeliveryFailure('No.'), refused(), refused()]

    def hesitate(*arguments):
        if refusals:
            raise refusals.pop()
        return listen(*arguments)

    monkeypatch.setattr(transport, '_listen', hesitate)
    monkeypatch.setattr(rpc.LOG.logger, 'handlers', [caplog.handler])
    # when a server starts
    server, pauses = rpc.Server(transport, rpc.CONDUCTOR, 'conductor1', []), []
    server._pause = pauses.append
    server.start()
    server.stop()
    server.wait()
    # then it listens in the end, after growing pauses
    assert pauses == [1, 2, 4]
    # and the log has a sentence for each refusal
    told = [record for record in caplog.records if record.name == 'cyborg.rpc']
    assert [record.levelname for record in told] == ['ERROR', 'ERROR', 'ERROR', 'INFO']
    assert not [record for record in told if record.exc_info]


def test_a_version_that_this_release_lacks_is_told_with_those_that_it_has(configured, monkeypatch):
    monkeypatch.setitem(manifests.CHANGES, '2.10', {})
    monkeypatch.setitem(manifests.CHANGES, '2.2', {})
    conf = configured('[upgrade_levels]\nagent = 1.0')
    with pytest.raises(
        errors.ConfigError, match=r'this release has 2\.0, 2\.1, 2\.2, 2\.10 and auto'
    ):
        rpc.pinned(conf, rpc.AGENT)


def test_a_cast_of_a_form_that_older_servers_lack_is_refused_under_an_older_pin(configured):
    client = rpc.Client(
        rpc.transport(configured('transport_url = kombu+memory:////')),
        rpc.AGENT,
        newest=lambda: manifests.OLDEST,
        changed={'wake': manifests.NEWEST},
    )
    with pytest.raises(errors.IncompatibleRelease, match='older form of wake'):
        client.cast(context.internal(), 'wake', 'compute1')


def test_heartbeats_have_a_topic_of_their_own_and_an_end(configured, monkeypatch):
    transport = rpc.transport(configured('transport_url = kombu+memory:////'))
    sent = []
    monkeypatch.setattr(
        transport._driver,
        'send',
        lambda target, *rest, **options: sent.append(
            (target.topic, options['timeout'], options['wait_for_reply'])
        ),
    )
    ConductorAPI(transport).heartbeat(context.internal(), 'compute1', 'digest')
    assert sent == [('cyborg-heartbeats', HEARTBEAT_EXPIRY, None)]
    # whereas other casts wait for whoever is to have them
    rpc.Client(transport, rpc.AGENT).cast(context.internal(), 'wake', 'compute1')
    assert sent[1:] == [('cyborg-agent', None, None)]


# -- calls that get no answer ------------------------------------------------------------------


@pytest.fixture
def transport(configured):
    conf = configured('transport_url = kombu+memory:////\nrpc_response_timeout = 8')
    made = rpc.transport(conf)
    yield made
    made.cleanup()


@pytest.fixture
def monitored(transport):
    return rpc.Client(transport, rpc.CONDUCTOR, limits=rpc.Limits(silence=2, read=5))


class Conductor:
    target = messaging.Target(version='2.0')

    def get_slowly(self, context, seconds):
        time.sleep(seconds)
        return 'done'


#: the threads that monitor calls
MONITORS = {'call-monitor', 'signs-of-life'}


@pytest.fixture
def server(transport):
    made = rpc.Server(transport, rpc.CONDUCTOR, 'conductor1', [Conductor()])
    made.start()
    yield made
    made.stop()
    made.wait()


class Broken:
    """Loses what a method answers, as often as it is told; then there are the answers given."""

    def __init__(self, transport, monkeypatch, losses, *answers):
        self._losses, self._answers = losses, list(answers)
        self.timeouts = []
        monkeypatch.setattr(transport._driver, 'send', self._send)

    def _send(self, *arguments, timeout=None, **options):
        self.timeouts.append(timeout)
        if len(self.timeouts) <= self._losses:
            raise messaging.MessagingTimeout('Timed out waiting for a reply')
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_without_a_conductor_a_call_fails_within_five_seconds(monitored):
    begin = time.monotonic()
    with pytest.raises(messaging.MessagingTimeout, match='No conductor answered list_agents'):
        monitored.read(context.internal(), 'list_agents')
    assert 2 < time.monotonic() - begin < 5


def test_a_conductor_that_works_on_a_call_may_take_its_time(monitored, server):
    # longer than a caller waits for a sign of life
    assert monitored.call(context.internal(), 'get_slowly', seconds=3) == 'done'


def test_short_calls_start_no_threads(transport, server, monkeypatch):
    # given a caller whose first sign of life is due in half a minute
    client = rpc.Client(transport, rpc.CONDUCTOR, limits=rpc.Limits(silence=60))
    client.call(context.internal(), 'get_slowly', seconds=0)  # starts what calls share
    started = []
    start = threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, 'start', lambda self: started.append(self.name) or start(self)
    )
    for _ in range(5):
        client.call(context.internal(), 'get_slowly', seconds=0)
    assert [name for name in started if name in MONITORS or '_watchdog' in name] == []


def test_a_call_that_changes_nothing_is_repeated_once(monitored, transport, monkeypatch):
    wire = Broken(transport, monkeypatch, 1, 'answer')
    assert monitored.read(context.internal(), 'list_agents') == 'answer'
    assert len(wire.timeouts) == 2
    wire = Broken(transport, monkeypatch, 2, 'answer')
    with pytest.raises(messaging.MessagingTimeout):
        monitored.read(context.internal(), 'list_agents')


def set_moments(monkeypatch, *moments):
    """Have the client read these moments, one after the other. Threads of other tests, which
    listen for messages, keep the clock of the machine."""
    left = iter(moments)
    monkeypatch.setattr(rpc, 'time', types.SimpleNamespace(monotonic=lambda: next(left)))


def test_the_repetition_has_what_is_left_of_the_time(transport, monkeypatch):
    client = rpc.Client(transport, rpc.CONDUCTOR, limits=rpc.Limits(read=3))
    set_moments(monkeypatch, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0)
    client._answers._is_open = True
    wire = Broken(transport, monkeypatch, 1, 'answer')
    assert client.read(context.internal(), 'list_agents') == 'answer'
    assert wire.timeouts == [3, 1]


def test_a_call_that_took_all_its_time_is_not_repeated(transport, monkeypatch):
    client = rpc.Client(transport, rpc.CONDUCTOR, limits=rpc.Limits(read=3))
    set_moments(monkeypatch, 0.0, 0.0, 0.0, 3.0)
    client._answers._is_open = True
    wire = Broken(transport, monkeypatch, 1, 'answer')
    with pytest.raises(messaging.MessagingTimeout):
        client.read(context.internal(), 'list_agents')
    assert wire.timeouts == [3]


def test_a_call_that_is_not_safe_to_repeat_is_made_once(monitored, transport, monkeypatch):
    wire = Broken(transport, monkeypatch, 1, 'answer')
    with pytest.raises(messaging.MessagingTimeout):
        monitored.call(context.internal(), 'program_deployable')
    assert len(wire.timeouts) == 1


def test_a_deletion_that_is_repeated_need_not_find_anything(monitored, transport, monkeypatch):
    Broken(transport, monkeypatch, 1, errors.ArqNotFound(uuids='1'))
    monitored.delete(context.internal(), 'delete_arqs')
    # whereas the first one must
    Broken(transport, monkeypatch, 0, errors.ArqNotFound(uuids='1'))
    with pytest.raises(errors.ArqNotFound):
        monitored.delete(context.internal(), 'delete_arqs')


def test_the_broker_drops_a_call_that_its_caller_no_longer_waits_for(
    monitored, transport, monkeypatch
):
    sent = []
    monkeypatch.setattr(
        impl_rabbit.Connection,
        'topic_send',
        lambda self, exchange_name, topic, timeout=None, **rest: sent.append((topic, timeout)),
    )
    with pytest.raises(messaging.MessagingTimeout):
        monitored.call(context.internal(), 'bind_arqs')
    # whereas casts wait
    monitored.cast(context.internal(), 'note_progress')
    assert sent == [('cyborg-conductor', 2), ('cyborg-conductor', None)]


def test_a_refused_call_is_not_monitored_any_more(monitored, server):
    threads = set(threading.enumerate())
    with pytest.raises(errors.IncompatibleRelease, match='does not have is_unknown'):
        monitored.call(context.internal(), 'is_unknown')
    end = time.monotonic() + 5
    while any(each.name in MONITORS for each in set(threading.enumerate()) - threads):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_first_call_does_not_wait_for_ever_for_a_broker(monitored, monkeypatch):
    # given a broker that is away as the queue for answers is to be created
    returned = threading.Event()
    monkeypatch.setattr(rpc.library_internals, 'open_reply_queue', lambda _: returned.wait())
    monkeypatch.setattr(rpc, 'CONNECT_TIMEOUT', 0.1)
    for _ in range(2):
        with pytest.raises(messaging.MessageDeliveryFailure, match='broker is away'):
            monitored.call(context.internal(), 'list_agents')
    # when it is back, calls are sent
    returned.set()
    monkeypatch.setattr(
        monitored._clients['2.0'].transport._driver, 'send', lambda *_, **__: 'answer'
    )
    eventually = time.monotonic() + 5
    while not monitored._answers._is_open:
        assert time.monotonic() < eventually
    assert monitored.call(context.internal(), 'list_agents') == 'answer'
