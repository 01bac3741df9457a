# SPDX-License-Identifier: Apache-2.0
"""Operators' tools hear of devices that fail, over a real queue."""

import json
import pathlib
import queue
import re
import uuid

import oslo_messaging as messaging
import pytest

from cyborg import rpc
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tests.fixtures.hosts import SimHost

pytestmark = pytest.mark.any_database
ADDRESS = '0000:6b:00.0'
DOCUMENTED = pathlib.Path(__file__).parents[2] / 'doc/source/admin/notifications.rst'
WELL, ILL = 'DLP 0\nTOTAL_ERR_FATAL 0', 'DLP 1\nTOTAL_ERR_FATAL 1'


class Listener:
    """Whoever watches over hardware."""

    def __init__(self, conf):
        self._heard = queue.SimpleQueue()
        self._transport = rpc.notification_transport(conf)
        self._server = messaging.get_notification_listener(
            self._transport,
            [messaging.Target(topic=topic) for topic in conf.oslo_messaging_notifications.topics],
            [self],
            executor='threading',
        )
        self._server.start()

    def error(self, ctxt, publisher_id, event_type, payload, metadata):
        assert (payload.pop('version'), payload.pop('at')[:2]) == ('1.0', '20')
        self._heard.put(('error', publisher_id, event_type, payload, ctxt))

    def info(self, ctxt, publisher_id, event_type, payload, metadata):
        assert (payload.pop('version'), payload.pop('at')[:2]) == ('1.0', '20')
        self._heard.put(('info', publisher_id, event_type, payload, ctxt))

    def next(self, noun='device'):
        """The next one about this."""
        while True:
            heard = self._heard.get(timeout=PATIENCE)
            if heard[2].startswith(f'{noun}.'):
                return heard

    def stop(self):
        self._server.stop()
        self._server.wait()
        self._transport.cleanup()


@pytest.fixture
def cloud(tmp_path):
    # queues are shared by a whole broker: this name tells ours from others'
    cloud = Cloud(
        tmp_path,
        more='[agent]\nresync_interval = 3600\n'
        '[oslo_messaging_notifications]\ndriver = messagingv2\n'
        f'topics = notifications-{uuid.uuid4()}\n',
    )
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
    host = cloud.host(
        make=SimHost, drivers=['intel_qat_driver'], cards=[{'model': '8086:4940', 'at': ADDRESS}]
    )
    cloud.rest()  # else it may see a card that is only half gone
    assert listener.next()[2] == 'device.added'
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
        'uuid': device['uuid'],
        'hostname': 'compute1',
        'key': ADDRESS,
        'type': 'QAT',
        'vendor': '8086',
        'model': device['model'],
        'driver_name': 'intel_qat_driver',
        'status': 'enabled',
        'is_missing': False,
        'instance_uuids': [],
    }
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


def test_devices_that_come_and_go_are_told(cloud, host, listener):
    host.plug_in('8086:4940', at='0000:70:00.0')
    eventually(lambda: len(cloud.get('/devices')['devices']) == 2)
    host.pull_out('0000:70:00.0')
    eventually(lambda: len(cloud.get('/devices')['devices']) == 1)
    for event in ('device.added', 'device.removed'):
        priority, _, told, payload, _ = listener.next()
        assert (priority, told, payload['key']) == ('info', event, '0000:70:00.0')


def test_the_use_of_an_accelerator_is_told_from_its_start_to_its_end(cloud, host, listener):
    profile = cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
    server = str(uuid.uuid4())
    [arq] = cloud.request('qat')
    assert cloud.bind([arq], instance=server).status_code == 202
    cloud.call('DELETE', f'/accelerator_requests?instance={server}')
    heard = [listener.next('arq') for _ in range(3)]
    assert [(event, payload['before'], payload['state']) for _, _, event, payload, _ in heard] == [
        ('arq.create', None, 'Initial'),
        ('arq.bind', 'Initial', 'Bound'),
        ('arq.delete', 'Bound', 'Deleting'),
    ]
    assert heard[1][3] == {
        'uuid': arq['uuid'],
        'state': 'Bound',
        'before': 'Initial',
        'hostname': 'compute1',
        'instance_uuid': server,
        'project_id': 'noauth',
        'resource_class': 'CUSTOM_QAT',
        'reason': None,
        'device_profile_uuid': profile['uuid'],
        'device_profile_name': 'qat',
    }


def test_agents_and_profiles_are_told(cloud, host, listener):
    cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
    _, _, event, payload, _ = listener.next('device_profile')
    assert (event, payload['name']) == ('device_profile.created', 'qat')
    cloud.standalone.remove_host('compute1')
    cloud.standalone.add_host(host)
    _, _, event, payload, _ = listener.next('agent')
    assert (event, payload['hostname']) == ('agent.started', 'compute1')


# -- what the documentation says of them -------------------------------------------------------


class Recorder(Listener):
    """Keeps notifications as a reader gets them."""

    def error(self, ctxt, publisher_id, event_type, payload, metadata):
        self._keep('ERROR', publisher_id, event_type, payload, metadata)

    def info(self, ctxt, publisher_id, event_type, payload, metadata):
        self._keep('INFO', publisher_id, event_type, payload, metadata)

    def _keep(self, priority, publisher_id, event_type, payload, metadata):
        envelope = {'priority': priority, 'publisher_id': publisher_id} | metadata
        self._heard.put((event_type, envelope, payload))

    def wait_for(self, *events):
        """Returns the first notifications of these types."""
        found = {}
        while not found.keys() >= {*events}:
            event, *notification = self._heard.get(timeout=PATIENCE)
            found.setdefault(event, notification)
        return found


@pytest.fixture
def recorder(cloud):
    """Instead of the listener: a notification is read once."""
    recorder = Recorder(cloud.standalone.conf)
    yield recorder
    recorder.stop()


def samples():
    """The notifications that are shown in full."""
    blocks = re.findall(r'code-block:: json\n\n((?:   .*\n|\n)+)', DOCUMENTED.read_text())
    return {sample['event_type']: sample for sample in map(json.loads, blocks)}


def kinds(document):
    """The keys of a document and the types of their values; null is of any type."""
    return {key: None if value is None else type(value) for key, value in document.items()}


def test_notifications_are_as_the_documentation_shows_them(cloud, recorder):
    host = cloud.host(
        make=SimHost, drivers=['intel_qat_driver'], cards=[{'model': '8086:4940', 'at': ADDRESS}]
    )
    cloud.rest()
    cloud.profile('qat', {'resources:CUSTOM_QAT': '1'})
    assert cloud.bind(cloud.request('qat')).status_code == 202
    host.show(ADDRESS, 'aer_dev_fatal', ILL)
    look(cloud)
    documented = samples()
    assert sorted(documented) == ['arq.bind', 'device.failed']
    told = recorder.wait_for(*documented, 'device_profile.created', 'agent.ready')
    for event, sample in documented.items():
        envelope, payload = told[event]
        assert kinds(payload) == kinds(sample['payload'])
        assert payload['version'] == sample['payload']['version']
        assert envelope['priority'] == sample['priority']
        assert envelope['publisher_id'].split('.')[0] == sample['publisher_id'].split('.')[0]
        assert sample.keys() - {'event_type', 'payload'} <= envelope.keys()
    # and those of which it only names the keys
    text = ' '.join(DOCUMENTED.read_text().split())
    listed = text.partition('``device_profile.deleted`` have ')[2].partition('. ')[0]
    _, payload = told['device_profile.created']
    assert payload.keys() == {'version', 'at', *re.findall('``([a-z_]+)``', listed)}
    _, payload = told['agent.ready']
    assert payload.keys() == {'version', 'at', 'uuid', 'hostname'}
