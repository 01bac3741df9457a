# SPDX-License-Identifier: Apache-2.0
"""Sending messages when nobody takes them."""

import oslo_messaging as messaging
import pytest
from kombu import exceptions as kombu_errors

from cyborg import context, errors, rpc
from cyborg.cmd import startup
from cyborg.conductor.rpcapi import HEARTBEAT_EXPIRY, ConductorAPI


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
    return rpc.Client(rpc.transport(conf), rpc.AGENT, '1.0')


def refused():
    """What a broker says to a user whom it does not know."""
    return kombu_errors.ChannelError('ACCESS_REFUSED - Login was refused.', reply_code=403)


def test_a_broker_that_is_away_is_an_error_and_not_a_wait_for_ever(client):
    with pytest.raises(messaging.MessageDeliveryFailure, match='broker is away'):
        client.cast(context.internal(), 'wake', 'compute1')


def test_a_broker_that_refuses_us_is_told_from_one_that_is_away(client, monkeypatch):
    def refuse(*arguments, **more):
        raise refused()
    monkeypatch.setattr(client._client, 'call', refuse)
    with pytest.raises(messaging.MessageDeliveryFailure, match='refuses us.*transport_url.*Login'):
        client.call(context.internal(), 'wake')


def test_no_answer_says_who_did_not_give_it(configured):
    conf = configured('transport_url = kombu+memory:////\nrpc_response_timeout = 1')
    client = rpc.Client(rpc.transport(conf), rpc.CONDUCTOR, '1.0')
    with pytest.raises(messaging.MessagingTimeout, match='No conductor answered list_agents'):
        client.call(context.internal(), 'list_agents')


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
    monkeypatch.setattr(rpc, 'PAUSE', 0)
    monkeypatch.setattr(rpc.LOG.logger, 'handlers', [caplog.handler])
    # when a server starts
    server = rpc.Server(transport, rpc.CONDUCTOR, 'conductor1', [])
    server.start()
    server.stop()
    server.wait()
    # then it listens in the end, and the log has a sentence for each refusal
    told = [record for record in caplog.records if record.name == 'cyborg.rpc']
    assert [record.levelname for record in told] == ['ERROR', 'ERROR', 'ERROR', 'INFO']
    assert not [record for record in told if record.exc_info]


def test_heartbeats_have_a_topic_of_their_own_and_an_end(configured, monkeypatch):
    transport = rpc.transport(configured('transport_url = kombu+memory:////'))
    sent = []
    monkeypatch.setattr(transport._driver, 'send', lambda target, *rest, **options: sent.append(
        (target.topic, options['timeout'], options['wait_for_reply'])))
    ConductorAPI(transport).heartbeat(context.internal(), 'compute1', 'digest')
    assert sent == [('cyborg-heartbeats', HEARTBEAT_EXPIRY, None)]
    # whereas other casts wait for whoever is to have them
    rpc.Client(transport, rpc.AGENT, '1.0').cast(context.internal(), 'wake', 'compute1')
    assert sent[1:] == [('cyborg-agent', None, None)]
