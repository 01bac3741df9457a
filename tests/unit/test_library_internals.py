# SPDX-License-Identifier: Apache-2.0
"""Names inside libraries that Cyborg depends on are still there, and are still needed.

If a test that ends in "still" fails, the library offers what Cyborg does by itself: delete that
code and the test.
"""

import inspect
import queue
import types

import cotyledon
import keystonemiddleware.auth_token
import oslo_messaging as messaging
import pytest
import waitress.server
from keystonemiddleware._common import config as middleware_config
from kombu.transport import memory, virtual
from openstack import proxy
from oslo_config import cfg
from oslo_messaging._drivers import amqpdriver, common, impl_rabbit
from oslo_service import service
from oslo_service.backend._threading import service as threading_service
from oslo_versionedobjects import base
from placement.objects import resource_class, trait

from cyborg import call_monitor, library_internals, objects
from cyborg.conf import opts


class Driver:
    """Notes the options with which oslo.messaging sends."""

    conf = cfg.ConfigOpts()

    def __init__(self):
        self.timeouts = []

    def send(self, *arguments, timeout=None, **options):
        self.timeouts.append(timeout)
        return None


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def transport(driver):
    return messaging.transport.RPCTransport(driver)


def send(transport):
    transport._send(messaging.Target(topic='topic'), {}, {}, retry=0)


class TestExpiryOfCasts:
    def test_every_message_has_it(self, driver, transport):
        send(library_internals.ExpiringTransport(transport, 5.0))
        assert driver.timeouts == [5.0]

    def test_oslo_messaging_sends_casts_without_one_still(self, driver, transport, monkeypatch):
        if hasattr(messaging.rpc.client, 'tracing'):  # since 18.3
            monkeypatch.setattr(messaging.rpc.client.tracing, 'trace_send', _nothing)
        monkeypatch.setattr(messaging.rpc.client.metrics, 'measure_metrics', _nothing)
        client = messaging.get_rpc_client(transport, messaging.Target(topic='topic'), timeout=5.0)
        client.prepare(timeout=5.0).cast({}, 'method')
        assert driver.timeouts == [None]


class TestReplyQueues:
    def test_oslo_messaging_has_the_names_that_we_set(self):
        assert {option.name for option in impl_rabbit.rabbit_opts} >= {
            *opts.RECONNECTION,
            'kombu_missing_consumer_retry_timeout',
        }
        assert isinstance(amqpdriver.ObsoleteReplyQueuesCache.TTL, int)

    def test_the_driver_registers_its_options_after_a_change_of_their_defaults(self):
        conf = cfg.ConfigOpts()
        library_internals.register_rabbit_options(conf)
        opts.set_lib_defaults()
        conf.register_opts(impl_rabbit.rabbit_opts, group='oslo_messaging_rabbit')
        assert conf.oslo_messaging_rabbit.rabbit_retry_backoff == 1

    def test_a_queue_that_was_missing_is_used_again(self, monkeypatch):
        monkeypatch.setattr(amqpdriver.ObsoleteReplyQueuesCache, 'TTL', 60)
        library_internals.remember_missing_reply_queues_for(0)
        queues = amqpdriver.ObsoleteReplyQueuesCache()
        queues.add('reply_1', 'message')
        assert queues.reply_q_valid('reply_1', 'message')

    def test_oslo_messaging_has_no_option_for_it_still(self):
        assert not [each.name for each in impl_rabbit.rabbit_opts if 'obsolete' in each.name]


class TestPausesOfListeners:
    def test_the_name_that_we_use_exists(self):
        assert 'ACK_REQUEUE_EVERY_SECONDS_MIN' in vars(amqpdriver)
        for user in (amqpdriver.AMQPListener.__init__, amqpdriver.ReplyWaiter.poll):
            assert 'ACK_REQUEUE_EVERY_SECONDS_MIN' in user.__code__.co_names

    def test_a_listener_begins_with_the_pause(self, monkeypatch):
        monkeypatch.setattr(amqpdriver, 'ACK_REQUEUE_EVERY_SECONDS_MIN', 0.001)
        monkeypatch.setattr(amqpdriver, 'ACK_REQUEUE_EVERY_SECONDS_MAX', 5)
        library_internals.pause_idle_listeners_for(0.5)
        waited = []

        class Connection:
            def consume(self, timeout):
                waited.append(timeout)
                if len(waited) == 3:
                    listener._shutdown.set()
                raise common.Timeout

        listener = amqpdriver.RpcAMQPListener(types.SimpleNamespace(prefetch_size=1), Connection())
        listener.poll()
        assert waited == [0.5, 1, 2]

    def test_a_call_needs_no_acknowledgement_by_its_listener_still(self):
        nothing = dict.fromkeys(inspect.signature(amqpdriver.AMQPIncomingMessage).parameters)
        message = amqpdriver.AMQPIncomingMessage(**nothing)
        assert message.acknowledge() is message.requeue() is None

    def test_oslo_messaging_begins_with_a_millisecond_still(self):
        assert 'ACK_REQUEUE_EVERY_SECONDS_MIN = 0.001\n' in inspect.getsource(amqpdriver)


class TestQueueingOfCalls:
    def test_the_names_that_we_use_exist(self):
        made = amqpdriver.AMQPDriverBase
        assert list(inspect.signature(made._get_connection).parameters) == [
            'self',
            'purpose',
            'retry',
        ]
        assert '_connection_pool' in inspect.getsource(made._get_connection)

    def test_a_monitored_call_may_wait_for_as_long_as_it_may_take_still(
        self, driver, transport, monkeypatch
    ):
        if hasattr(messaging.rpc.client, 'tracing'):
            monkeypatch.setattr(messaging.rpc.client.tracing, 'trace_send', _nothing)
        monkeypatch.setattr(messaging.rpc.client.metrics, 'measure_metrics', _nothing)
        client = messaging.get_rpc_client(transport, messaging.Target(topic='topic'))
        client.prepare(timeout=60, call_monitor_timeout=5).call({}, 'method')
        assert driver.timeouts == [60]


class TestReplyQueue:
    def test_it_is_created_by_the_first_call_still(self):
        made = amqpdriver.AMQPDriverBase(cfg.ConfigOpts(), None, None)
        assert made._reply_q is None
        assert callable(made._get_reply_q)

    def test_there_is_no_public_way_to_create_it_still(self):
        offered = {
            name
            for kind in (messaging.transport.RPCTransport, amqpdriver.AMQPDriverBase)
            for name in dir(kind)
            if not name.startswith('_')
        }
        assert not [name for name in offered if 'reply' in name]


class TestMonitoringOfCalls:
    INCOMING = types.SimpleNamespace(
        message={'method': 'unknown', 'version': '1.0'}, ctxt={}, client_timeout=2
    )

    def test_oslo_messaging_starts_a_thread_for_each_still(self, monkeypatch):
        # given a dispatcher that starts a thread with an event that ends it
        started = queue.SimpleQueue()
        monkeypatch.setattr(
            messaging.RPCDispatcher, '_watchdog', lambda self, event, incoming: started.put(event)
        )
        # when it refuses a call
        with pytest.raises(messaging.UnsupportedVersion):
            messaging.RPCDispatcher([], None).dispatch(self.INCOMING)
        # then it does not set the event
        assert not started.get().is_set()

    def test_oslo_messaging_starts_none_if_we_monitor(self, monkeypatch):
        started = queue.SimpleQueue()
        monkeypatch.setattr(
            messaging.RPCDispatcher, '_watchdog', lambda self, event, incoming: started.put(event)
        )
        server = types.SimpleNamespace(dispatcher=messaging.RPCDispatcher([], None))
        library_internals.monitor_calls(server, call_monitor.Monitor())
        with pytest.raises(messaging.UnsupportedVersion):
            server.dispatcher.dispatch(types.SimpleNamespace(**vars(self.INCOMING)))
        assert started.empty()

    def test_the_driver_has_the_names_that_we_use(self):
        source = inspect.getsource(amqpdriver.AMQPIncomingMessage)
        assert 'self.client_timeout = client_timeout' in source
        assert callable(amqpdriver.AMQPIncomingMessage.heartbeat)

    @pytest.mark.parametrize('timeout', [None, 0, 1])
    def test_a_call_without_a_useful_timeout_is_left_to_oslo_messaging(self, timeout):
        incoming = types.SimpleNamespace(client_timeout=timeout)
        dispatched = []
        dispatcher = types.SimpleNamespace(dispatch=dispatched.append)
        library_internals.monitor_calls(types.SimpleNamespace(dispatcher=dispatcher), None)
        dispatcher.dispatch(incoming)
        assert dispatched == [types.SimpleNamespace(client_timeout=timeout)]


class _nothing:
    def __init__(self, *arguments, **options):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


class TestMutatingOptions:
    @pytest.mark.parametrize('launcher', [service.ServiceLauncher, service.ProcessLauncher])
    def test_the_manager_of_a_launcher_has_hooks(self, launcher):
        assert launcher(cfg.ConfigOpts())._manager is None
        assert callable(cotyledon.ServiceManager.register_hooks)

    def test_oslo_service_restarts_workers_still(self):
        assert threading_service.ServiceWrapper.reload is cotyledon.Service.reload


class TestVersionedObjects:
    def test_fields_are_kept_under_the_names_that_we_read(self):
        assert all(base._get_attrname(name) == slot for name, slot in objects.Arq.slots.items())

    def test_the_library_builds_objects_by_the_method_that_we_override(self, monkeypatch):
        built = []
        monkeypatch.setattr(
            objects.Arq,
            '_obj_from_primitive',
            classmethod(lambda cls, context, version, primitive: built.append(version)),
        )
        objects.Arq.obj_from_primitive(objects.Arq(hostname='compute1').obj_to_primitive())
        assert built == [objects.Arq.VERSION]


def test_kombu_polls_its_memory_transport_still():
    assert memory.Transport.drain_events is virtual.Transport.drain_events


def test_waitress_has_no_graceful_stop_still():
    offered = {name for name in dir(waitress.server.TcpWSGIServer) if not name.startswith('_')}
    assert not offered & {'shutdown', 'stop', 'drain', 'graceful_shutdown'}


def test_a_proxy_of_the_sdk_takes_no_connection_still():
    assert 'connection' not in inspect.signature(proxy.Proxy.__init__).parameters
    assert '_connection' in inspect.getsource(proxy.Proxy._get_connection)


def test_the_middleware_of_keystone_shows_its_options_to_nobody_still():
    middleware = keystonemiddleware.auth_token.AuthProtocol
    assert not {'conf', 'config', 'options'} & set(dir(middleware))
    assert 'self._conf = ' in inspect.getsource(middleware.__init__)
    assert 'group' in inspect.signature(middleware_config.Config.get).parameters


def test_placement_remembers_in_its_modules_what_it_has_synchronised():
    assert isinstance(trait._TRAITS_SYNCED, bool)
    assert isinstance(resource_class._RESOURCE_CLASSES_SYNCED, bool)
