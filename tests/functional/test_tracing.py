# SPDX-License-Identifier: Apache-2.0
"""A signed request is traced through the API, conductor, database and agent; others are not."""

import contextlib
import gzip
import threading
import wsgiref.simple_server

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from osprofiler import notifier, profiler, web
from osprofiler.drivers import base

from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost

KEY = 'key'
SETTINGS = """
[profiler]
enabled = true
hmac_keys = {key}
trace_sqlalchemy = true
connection_string = collected://
[gpu_devices]
enabled_vgpu_types = nvidia-223
"""
CARDS = [{'model': '10de:1eb8', 'at': '0000:3b:00.0'}]


class Collected(base.Driver):
    """A collector of spans in memory, as osprofiler finds it by its name."""

    notes = []

    @classmethod
    def get_name(cls):
        return 'collected'

    def notify(self, info, **kwargs):
        self.notes.append(info)


class Spans:
    """What was collected: spans by id."""

    def __init__(self):
        self.started = {
            note['trace_id']: note for note in Collected.notes if note['name'].endswith('-start')
        }

    def names(self, kind):
        return {
            note['info']['function']['name']
            for note in self.started.values()
            if note['name'] == f'{kind}-start'
        }

    def kinds_above(self, kind, name):
        """The kinds of the spans around one, from the inside to the outside."""
        span = next(
            note
            for note in self.started.values()
            if note['name'] == f'{kind}-start' and note['info']['function']['name'] == name
        )
        kinds = []
        while span is not None:
            kinds.append(span['name'].removesuffix('-start'))
            span = self.started.get(span['parent_id'])
        return kinds


class Collector:
    """A collector of OpenTelemetry, which takes what it gets by HTTP."""

    def __init__(self):
        self.spans = []
        self._server = wsgiref.simple_server.make_server(
            '127.0.0.1', 0, self._take, handler_class=Quiet
        )
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _take(self, environ, start_response):
        body = environ['wsgi.input'].read(int(environ['CONTENT_LENGTH']))
        if environ.get('HTTP_CONTENT_ENCODING') == 'gzip':
            body = gzip.decompress(body)
        sent = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
        self.spans += [
            span
            for resource in sent.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        start_response('200 OK', [('Content-Type', 'application/x-protobuf')])
        return [b'']

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._server.shutdown()
        self._server.server_close()


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def running(cloud):
    notifier.clear_notifier_cache()
    cloud.start()
    try:
        yield cloud
    finally:
        cloud.stop()
        web.disable()
        notifier.clear_notifier_cache()
        notifier.set(lambda info, **kwargs: None)


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    monkeypatch.setattr(Collected, 'notes', [])
    with running(Cloud(tmp_path, more=SETTINGS.format(key=KEY))) as made:
        yield made


def signed(key):
    """The headers of a client that starts a trace."""
    profiler.init(key)
    try:
        return web.get_trace_id_headers()
    finally:
        profiler.clean()


def bind(cloud, arqs, key=KEY):
    """Bind with all requests of this client signed."""
    cloud.session.headers.update(signed(key))
    try:
        return cloud.bind(arqs)
    finally:
        for name in signed(key):
            cloud.session.headers.pop(name)


def test_a_signed_bind_is_one_trace_through_all_services(cloud):
    # given a vGPU that its host has to create
    cloud.host(make=SimHost, cards=CARDS, drivers=['nvidia_gpu_driver'])
    cloud.profile('vgpu', {'resources:VGPU': '1'})
    arqs = cloud.request('vgpu')
    assert Collected.notes == []
    # when a client signs the bind
    assert bind(cloud, arqs).status_code == 202
    # then one trace has the API, the conductor, its statements, the task of the host and its result
    eventually(lambda: 'finish_tasks' in Spans().names('conductor_rpc'))
    spans = Spans()
    assert len({note['base_id'] for note in Collected.notes}) == 1
    assert spans.kinds_above('conductor_rpc', 'bind_arqs') == ['conductor_rpc', 'rpc', 'wsgi']
    task = 'prepare nvidia_gpu_driver'
    assert spans.kinds_above('task', task)[-4:] == ['rpc', 'conductor_rpc', 'rpc', 'wsgi']
    assert spans.kinds_above('conductor_rpc', 'finish_tasks')[:2] == ['conductor_rpc', 'rpc']
    statements = [note for note in spans.started.values() if note['name'] == 'db-start']
    assert any('attach_handles' in note['info']['db']['statement'] for note in statements)


def test_a_request_that_is_not_signed_with_our_key_is_not_traced(cloud):
    cloud.host()
    cloud.profile('one', {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'})
    assert bind(cloud, cloud.request('one'), key='another').status_code == 202
    assert Collected.notes == []


def test_spans_reach_a_collector_of_opentelemetry(tmp_path):
    # given a collector, which osprofiler's own driver sends to
    with Collector() as collector:
        settings = SETTINGS.replace('collected://', f'otlp://127.0.0.1:{collector.port}')
        cloud = Cloud(tmp_path, more=settings.format(key=KEY))
        with running(cloud):
            # when a client signs a request
            cloud.session.headers.update(signed(KEY))
            cloud.get('/devices')
            trace.get_tracer_provider().shutdown()  # sends what waits
        # then the collector has the spans of the API, the conductor and the database
        names = {span.name for span in collector.spans}
    assert {'WSGI_GET_/v2/devices', 'SQL_SELECT', 'rpc', 'conductor_rpc'} <= names
    assert len({span.trace_id for span in collector.spans}) == 1
