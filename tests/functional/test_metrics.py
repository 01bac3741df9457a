# SPDX-License-Identifier: Apache-2.0
"""Metrics agree with the rows and with what the services did."""

import contextlib
import json
import socket
import tempfile
from socket import AF_UNIX, SOCK_DGRAM

import pytest
import requests
from oslo_messaging._metrics import client as metrics_client
from prometheus_client import parser

from cyborg import metrics
from cyborg.conductor import metrics as figures
from cyborg.conductor import sweep
from tests.fixtures.cloud import PATIENCE, Cloud, eventually
from tools.services.server import free_port

FPGA = {'resources:FPGA': '2', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
SETTINGS = """
[conductor]
metrics_port = {port}
metrics_profiles = two, missing
sweep_interval = 1
audit_interval = 1
"""


class Watched(Cloud):
    """A cloud whose metrics are read."""

    def __init__(self, directory):
        self._port = free_port()
        super().__init__(directory, conductors=2, more=SETTINGS.format(port=self._port))

    def metrics(self):
        """All samples: name and labels -> value."""
        text = requests.get(f'http://127.0.0.1:{self._port}/metrics', timeout=PATIENCE).text
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name, **labels):
        return self.metrics().get((name, frozenset(labels.items())), 0)


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, 'PROFILES_INTERVAL', 1)
    made = Watched(tmp_path)
    made.start()
    yield made
    made.stop()


def test_metrics_tell_what_the_rows_say(cloud):
    cloud.host()
    cloud.profile('two', FPGA)
    cloud.bind(cloud.request('two'))
    eventually(lambda: cloud.metric('cyborg_arqs', state='Bound') == 2)
    assert cloud.metric('cyborg_devices', type='FPGA') == 1
    assert cloud.metric('cyborg_agents', alive='true') == 1
    found = 'cyborg_audit_findings', frozenset()
    eventually(lambda: found in cloud.metrics())
    assert cloud.metrics()[found] == 0


def test_metrics_tell_what_the_services_did(cloud):
    def binds():
        return cloud.metric('cyborg_binds_total', driver='fake_driver', result='ok')

    def refusals():
        return cloud.metric('cyborg_refused_binds_total', reason='NoFreeHandle')

    def calls(name, **labels):
        return cloud.metric(f'cyborg_{name}_duration_seconds_count', **labels)

    # given counters of a process in which other tests have run
    before = binds(), refusals()
    # when requests take all of a device, and one more is refused
    cloud.host()
    cloud.profile('two', FPGA)
    eventually(lambda: ('cyborg_profile_fits', frozenset({('profile', 'two')})) in cloud.metrics())
    servers = 0
    while cloud.bind(cloud.request('two')).status_code == 202:
        servers += 1
    # then the metrics of every service tell
    assert servers
    assert (binds(), refusals()) == (before[0] + 2 * servers, before[1] + 2)
    assert calls('api_request', method='PATCH', collection='accelerator_requests', status='202')
    assert calls('rpc_call', service='conductor', method='bind_arqs', result='ok')
    assert calls('rpc_call', service='conductor', method='bind_arqs', result='refused')
    assert calls('conductor_call', method='bind_arqs', result='refused')
    assert calls('service_call', service='placement', method='POST', status='200')
    assert calls('agent_round', result='ok')
    eventually(lambda: cloud.metric('cyborg_nova_events_total', result='accepted'))
    eventually(lambda: cloud.metric('cyborg_arqs', state='Bound') == 2 * servers)
    # and no metric is served that is not declared with its labels
    declared = metrics.LABELS | figures.LABELS
    served = {(name, frozenset(key for key, _ in labels)) for name, labels in cloud.metrics()}
    assert served <= {(name, frozenset(labels)) for name, labels in declared.items()}


@pytest.fixture
def daemon():
    """The socket of oslo.metrics' daemon: yields a function that returns the names of metrics and
    methods that it was sent since the last call."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(AF_UNIX, SOCK_DGRAM) as listener:
        listener.bind(f'{directory}/daemon')  # the path of a socket must be short
        listener.setblocking(False)

        def received():
            sent = set()
            with contextlib.suppress(BlockingIOError):
                while True:
                    metric = json.loads(listener.recv(65536))
                    sent.add((metric['name'], metric['labels']['method']))
            return sent

        received.path = f'{directory}/daemon'
        yield received


@contextlib.contextmanager
def measured(directory, path, monkeypatch, more=''):
    """A cloud in which oslo.messaging sends metrics to a socket."""
    monkeypatch.setattr(metrics_client, 'METRICS_COLLECTOR', None)
    cloud = Cloud(
        directory,
        more='[oslo_messaging_metrics]\nmetrics_enabled = true\nmetrics_thread_stop_timeout = 1\n'
        f'metrics_socket_file = {path}\n{more}',
    )
    cloud.start()
    try:
        yield cloud
    finally:
        cloud.stop()
        metrics_client.METRICS_COLLECTOR.send_thread.join()


def test_oslo_messaging_sends_its_own_metrics_to_oslo_metrics(tmp_path, daemon, monkeypatch):
    sent = set()
    wanted = {
        ('rpc_client_invocation_start_total', 'list_devices'),
        ('rpc_client_processing_seconds', 'list_devices'),
    }
    with measured(tmp_path, daemon.path, monkeypatch) as cloud:
        cloud.get('/devices')
        eventually(lambda: sent.update(daemon()) or wanted <= sent)


# oslo.messaging does not close a socket that it could not connect
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
def test_a_daemon_of_oslo_metrics_that_is_away_disturbs_no_request(tmp_path, monkeypatch):
    missing = tmp_path / 'missing'
    with measured(tmp_path, missing, monkeypatch, 'metrics_buffer_size = 1\n') as cloud:
        for _ in range(3):
            assert cloud.get('/devices') == {'devices': []}
