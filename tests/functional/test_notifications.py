# SPDX-License-Identifier: Apache-2.0
"""Operators' tools hear of devices that fail, over a real queue."""

import queue
import uuid

import oslo_messaging as messaging
import pytest

from cyborg import rpc
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.hosts import SimHost

pytestmark = pytest.mark.any_database
ADDRESS = '0000:6b:00.0'
WELL, ILL = 'DLP 0\nTOTAL_ERR_FATAL 0', 'DLP 1\nTOTAL_ERR_FATAL 1'


class Listener:
    """Whoever watches over hardware."""

    def __init__(self, conf):
        self._heard = queue.SimpleQueue()
        self._transport = rpc.notification_transport(conf)
        self._server = messaging.get_notification_listener(
            self._transport,
            [messaging.Target(topic=topic) for topic in conf.oslo_messaging_notifications.topics],
            [self], executor='threading')
        self._server.start()

    def error(self, ctxt, publisher_id, event_type, payload, metadata):
        self._heard.put(('error', publisher_id, event_type, payload, ctxt))

    def info(self, ctxt, publisher_id, event_type, payload, metadata):
        self._heard.put(('info', publisher_id, event_type, payload, ctxt))

    def next(self):
        return self._heard.get(timeout=PATIENCE)

    @property
    def is_silent(self):
        return self._heard.empty()

    def stop(self):
        self._server.stop()
        self._server.wait()
        self._transport.cleanup()


@pytest.fixture
def cloud(tmp_path):
    # queues are shared by a whole broker: this name tells ours from others'
    cloud = Cloud(tmp_path, more='[agent]\nresync_interval = 3600\n'
                  '[oslo_messaging_notifications]\ndriver = messagingv2\n'
                  f'topics = notifications-{uuid.uuid4()}\n')
    cloud.start()
    yield cloud
    cloud.stop()


@pytest.fixture
def listener(cloud):
    listener = Listener(cloud.standalone.conf)
    yield listener
    listener.stop()


@pytest.fixture
def host(cloud, listener):
    host = cloud.host(make=SimHost, drivers=['intel_qat_driver'],
                      cards=[{'model': '8086:4940', 'at': ADDRESS}])
    cloud.rest()  # else it may see a card that is only half gone
    return host


def look(cloud):
    cloud.agent().inventory.wake()  # the kernel tells nobody of errors: the timer finds them


def test_a_device_that_falls_ill_and_recovers_is_told(cloud, host, listener):
    host.show(ADDRESS, 'aer_dev_fatal', ILL)
    look(cloud)
    [device] = cloud.get('/devices')['devices']
    priority, publisher, event, payload, ctxt = listener.next()
    assert (priority, publisher, event) == ('error', 'conductor.conductor-0', 'device.failed')
    fault = payload.pop('fault')
    assert 'fatal PCI errors' in fault
    assert payload == {
        'uuid': device['uuid'], 'hostname': 'compute1', 'key': ADDRESS, 'type': 'QAT',
        'vendor': '8086', 'model': device['model'], 'driver_name': 'intel_qat_driver',
        'status': 'enabled', 'is_missing': False, 'instance_uuids': []}
    assert set(ctxt) <= {'request_id', 'client_timeout'}

    look(cloud)  # the same again is no news
    host.show(ADDRESS, 'aer_dev_fatal', WELL)
    look(cloud)
    priority, _, event, payload, _ = listener.next()
    assert (priority, event, payload['fault']) == ('info', 'device.recovered', None)


def test_whose_server_suffers_is_told(cloud, host, listener):
    cloud.profile('qat', {'resources:CUSTOM_QAT': '2'})
    server = str(uuid.uuid4())
    assert cloud.bind(cloud.request('qat'), instance=server).status_code == 202
    host.pull_out(ADDRESS)
    priority, _, event, payload, _ = listener.next()
    assert (priority, event) == ('error', 'device.failed')
    assert (payload['is_missing'], payload['instance_uuids']) == (True, [server])
    # and when they have let go of it, there is nothing left to worry about
    cloud.call('DELETE', f'/accelerator_requests?instance={server}')
    priority, _, event, payload, _ = listener.next()
    assert (priority, event, payload['instance_uuids']) == ('info', 'device.removed', [])
    assert cloud.get('/devices')['devices'] == []


def test_devices_that_come_and_go_in_good_health_are_no_news(cloud, host, listener):
    host.plug_in('8086:4940', at='0000:70:00.0')
    eventually(lambda: len(cloud.get('/devices')['devices']) == 2)
    host.pull_out('0000:70:00.0')
    eventually(lambda: len(cloud.get('/devices')['devices']) == 1)
    host.show(ADDRESS, 'aer_dev_fatal', ILL)
    look(cloud)
    assert listener.next()[3]['key'] == ADDRESS
    assert listener.is_silent
