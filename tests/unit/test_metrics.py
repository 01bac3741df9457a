# SPDX-License-Identifier: Apache-2.0
"""What a process counts, and how the processes of a service serve it together."""

import logging
import os
import subprocess
import sys

import prometheus_client
import pytest
import requests
import webob
import webob.dec

from cyborg import errors, metrics
from cyborg.api.middleware import request_metrics
from tools.services.server import free_port

PATIENCE = 120
#: workers that count, and end, before one of the service serves what all have counted
WORKERS = """
import os, sys, urllib.request
from cyborg import metrics

metrics.share_between_processes()
for driver in ('one', 'two', 'two'):
    if not (child := os.fork()):
        metrics.BINDS.labels(driver, metrics.OK).inc()
        os._exit(0)
    os.waitpid(child, 0)
port = int(sys.argv[1])
listener = metrics.Listener('127.0.0.1', port)
listener.start()
print(os.environ[metrics.SHARED])
print(urllib.request.urlopen(f'http://127.0.0.1:{port}/metrics').read().decode())
listener.stop()
"""


def value(name, **labels):
    return metrics.REGISTRY.get_sample_value(name, labels) or 0


@webob.dec.wsgify
def api(request):
    return webob.Response(status=int(request.headers.get('X-Status', 200)))


@pytest.mark.parametrize(
    'path, collection',
    [
        ('/v2/devices', 'devices'),
        ('/v2/devices/1/disable', 'devices'),
        ('/v2/devices.json', 'devices'),
        ('/', 'root'),
        ('', 'root'),
        ('/v2', 'root'),
        ('/v2/', 'root'),
        ('/healthcheck', 'healthcheck'),
        ('/devices', 'other'),
        ('/v2/made-up', 'other'),
        ('/made/up', 'other'),
    ],
)
def test_a_request_is_counted_by_its_collection_which_clients_cannot_make_up(path, collection):
    labels = {'method': 'GET', 'collection': collection, 'status': '404'}
    name = 'cyborg_api_request_duration_seconds_count'
    before = value(name, **labels)
    application = request_metrics.RequestMetrics(api, {'devices'})
    request = webob.Request.blank('/', headers={'X-Status': '404'})
    request.environ['PATH_INFO'] = path
    request.get_response(application)
    assert value(name, **labels) == before + 1


def test_a_method_that_a_client_made_up_is_not_a_value_of_a_label():
    request = webob.Request.blank('/v2/devices', method='MADEUP')
    request.get_response(request_metrics.RequestMetrics(api, {'devices'}))
    served = prometheus_client.generate_latest(metrics.REGISTRY).decode()
    assert 'MADEUP' not in served
    assert 'method="other"' in served


def test_a_block_that_raises_has_failed():
    before = value('cyborg_agent_round_duration_seconds_count', result='failed')
    with pytest.raises(ValueError), metrics.Timer(metrics.AGENT_ROUNDS):
        raise ValueError
    assert value('cyborg_agent_round_duration_seconds_count', result='failed') == before + 1


def test_the_process_that_has_the_port_serves_the_metrics_of_all_workers():
    ended = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', WORKERS, str(free_port())],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    directory, _, served = ended.stdout.partition('\n')
    assert 'cyborg_binds_total{driver="one",result="ok"} 1.0' in served, ended.stderr
    assert 'cyborg_binds_total{driver="two",result="ok"} 2.0' in served
    assert not os.path.exists(directory)


def test_a_process_whose_port_is_taken_goes_on_without_serving(caplog):
    port = free_port()
    first, second = (metrics.Listener('127.0.0.1', port) for _ in range(2))
    first.start()
    with caplog.at_level(logging.WARNING):
        second.start()
    assert f'not served on 127.0.0.1:{port}' in caplog.text
    second.stop()
    assert requests.get(f'http://127.0.0.1:{port}/metrics', timeout=PATIENCE).ok
    first.stop()


def test_without_a_port_nothing_listens():
    listener = metrics.Listener('127.0.0.1', None)
    listener.start()
    listener.stop()


def test_a_wsgi_server_serves_metrics_from_its_first_request_on():
    port = free_port()
    listener = metrics.Listener('127.0.0.1', port)
    application = request_metrics.ServedFromFirstRequest(api, listener)
    with pytest.raises(requests.ConnectionError):
        requests.get(f'http://127.0.0.1:{port}/metrics', timeout=PATIENCE)
    for _ in range(2):
        assert webob.Request.blank('/').get_response(application).status_int == 200
    assert requests.get(f'http://127.0.0.1:{port}/metrics', timeout=PATIENCE).ok
    listener.stop()


def test_a_shared_directory_that_cannot_be_made_is_an_error_of_the_configuration(
    tmp_path, monkeypatch
):
    (tmp_path / 'file').touch()
    monkeypatch.setenv(metrics.SHARED, str(tmp_path / 'file' / 'directory'))
    with pytest.raises(errors.ConfigError, match='PROMETHEUS_MULTIPROC_DIR'):
        metrics.prepare()


def test_a_shared_directory_is_made_if_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv(metrics.SHARED, str(tmp_path / 'metrics'))
    metrics.prepare()
    assert (tmp_path / 'metrics').is_dir()
