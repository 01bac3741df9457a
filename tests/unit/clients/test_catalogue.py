# SPDX-License-Identifier: Apache-2.0
"""Which endpoint of the catalogue is called, how often, and what that costs in calls."""

import collections
import gc
import threading
from concurrent import futures

import pytest
import requests
import webob
from keystoneauth1 import exceptions
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.clients import keystone, wsgi
from cyborg.clients.glance import Glance
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Allocations

TOKEN = 'X-Auth-Token'
SECTIONS = ['placement', 'nova', 'glance']
CREDENTIALS = """
[{section}]
auth_type = v3applicationcredential
auth_url = http://keystone.local/v3
application_credential_id = 1234
application_credential_secret = secret
"""


class FakeCloud:
    """A Keystone and the services of its catalogue, with every call counted."""

    def __init__(self):
        self.calls = []
        self.headers = []
        self.statuses = collections.deque()  #: of the next answers; 200 when there are none
        self.breaks = 0  #: how many of the next calls fail below HTTP
        self.session = requests.Session()
        self.session.mount('http://', Breaking(self, wsgi.Transport(self._serve)))

    @property
    def endpoints(self):
        """Those of the services that were called, without Keystone."""
        return [url for url in self.calls if '//keystone.local' not in url]

    def _serve(self, environ, start_response):
        request = webob.Request(environ)
        if request.domain == 'keystone.local':
            return self._token()(environ, start_response)
        self.headers.append(request.headers)
        status = self.statuses.popleft() if self.statuses else 200
        body = {'allocations': {}, 'server': {}, 'images': [], 'token': request.headers.get(TOKEN)}
        return webob.Response(status=status, json=body)(environ, start_response)

    def _token(self):
        answer = {
            'token': {
                'methods': ['application_credential'],
                'expires_at': '2099-01-01T00:00:00.000000Z',
                'issued_at': '2026-01-01T00:00:00.000000Z',
                'user': {'id': 'u', 'name': 'cyborg', 'domain': {'id': 'd', 'name': 'd'}},
                'project': {'id': 'p', 'name': 'service', 'domain': {'id': 'd', 'name': 'd'}},
                'catalog': [service(kind) for kind in ('placement', 'compute', 'image')],
            }
        }
        return webob.Response(status=201, json=answer, headers={'X-Subject-Token': 'good'})


class Breaking(requests.adapters.BaseAdapter):
    """The network: it counts, and breaks when it is told to."""

    def __init__(self, cloud, transport):
        super().__init__()
        self._cloud = cloud
        self._transport = transport

    def send(self, request, **options):
        self._cloud.calls.append(f'{request.method} {request.url}')
        if self._cloud.breaks and '//keystone.local' not in request.url:
            self._cloud.breaks -= 1
            raise requests.ConnectionError('refused')
        return self._transport.send(request, **options)

    def close(self):
        pass


def service(kind):
    return {
        'type': kind,
        'id': kind,
        'name': kind,
        'endpoints': [
            {
                'id': f'{kind}-{region}-{interface}',
                'region': region,
                'region_id': region,
                'interface': interface,
                'url': f'http://{kind}.{interface}.{region}.local',
            }
            for region in ('north', 'south')
            for interface in ('public', 'internal', 'admin')
        ],
    }


@pytest.fixture
def cloud():
    return FakeCloud()


@pytest.fixture
def connect(cloud, tmp_path):
    """A service of the cloud, with these lines in its section."""

    def make(section, *lines):
        conf = cfg.ConfigOpts()
        options.register(conf)
        text = CREDENTIALS.format(section=section) + '\n'.join(lines)
        (tmp_path / 'cyborg.conf').write_text(text)
        conf(['--config-file', str(tmp_path / 'cyborg.conf')])
        return keystone.connect(conf, section, cloud.session)

    return make


@pytest.mark.parametrize('section', SECTIONS)
def test_nothing_is_sent_before_the_first_call(connect, cloud, section):
    connect(section)
    assert cloud.calls == []


@pytest.mark.parametrize('section', SECTIONS)
def test_one_token_and_no_version_document_is_asked_for(connect, cloud, section):
    made = connect(section)
    for _ in range(3):
        made.get('/things')
    kind = keystone.SERVICE_TYPES[section]
    assert cloud.calls == [
        'POST http://keystone.local/v3/auth/tokens',
        *[f'GET http://{kind}.public.north.local/things'] * 3,
    ]
    assert cloud.headers[0][TOKEN] == 'good'
    assert cloud.headers[0]['User-Agent'] == 'cyborg'


def test_our_clients_ask_for_no_version_document_either(connect, cloud):
    Allocations(connect('placement')).providers_of('consumer')
    nova = Nova(connect('nova'))
    nova.exists('server')
    nova.send_events([('server', 'request', 'completed')])
    Glance(connect('glance')).search({})
    assert [call.partition('?')[0] for call in cloud.endpoints] == [
        'GET http://placement.public.north.local/allocations/consumer',
        'GET http://compute.public.north.local/servers/server',
        'POST http://compute.public.north.local/os-server-external-events',
        'GET http://image.public.north.local/v2/images',
    ]


@pytest.mark.parametrize('section', SECTIONS)
@pytest.mark.parametrize(
    ('lines', 'host'),
    [
        (['region_name = south'], '{}.public.south.local'),
        (['valid_interfaces = internal,public'], '{}.internal.north.local'),
        (['interface = admin'], '{}.admin.north.local'),
        (['region_name = south', 'valid_interfaces = admin'], '{}.admin.south.local'),
        (['endpoint_override = http://elsewhere.local/below/'], 'elsewhere.local/below'),
        (['service_name = image', 'service_type = image'], 'image.public.north.local'),
    ],
)
def test_the_section_chooses_the_endpoint(connect, cloud, section, lines, host):
    connect(section, *lines).get('/things')
    [call] = cloud.endpoints
    assert call == f'GET http://{host.format(keystone.SERVICE_TYPES[section])}/things'


@pytest.mark.parametrize('section', SECTIONS)
def test_versions_of_the_section_are_what_is_asked_for(connect, section):
    made = connect(section)
    assert (made.version, made.min_version, made.max_version) == (None, None, None)
    assert connect(section, 'version = 2').version == '2'
    made = connect(section, 'min_version = 1', 'max_version = 2')
    assert (made.min_version, made.max_version) == ('1', '2')


@pytest.mark.parametrize('section', SECTIONS)
def test_a_call_is_repeated_only_if_the_section_says_so(connect, cloud, section):
    made = connect(section)
    cloud.statuses.extend([503, 503, 503])
    assert made.get('/things', raise_exc=False).status_code == 503
    cloud.breaks = 2
    with pytest.raises(exceptions.ConnectFailure):
        made.get('/things')
    assert len(cloud.endpoints) == 2


@pytest.mark.parametrize('section', SECTIONS)
def test_a_call_is_repeated_as_often_as_the_section_says(connect, cloud, section):
    made = connect(
        section,
        'status_code_retries = 2',
        'status_code_retry_delay = 0.01',
        'retriable_status_codes = 418,503',
        'connect_retries = 3',
        'connect_retry_delay = 0.01',
    )
    cloud.statuses.extend([418, 503, 200])
    assert made.get('/things', raise_exc=False).status_code == 200
    assert len(cloud.endpoints) == 3
    cloud.breaks = 3
    assert made.get('/things').status_code == 200
    assert len(cloud.endpoints) == 7


def test_a_refusal_is_raised_unless_the_caller_looks_at_it(connect, cloud):
    cloud.statuses.extend([409, 409])
    made = connect('placement')
    with pytest.raises(exceptions.Conflict):
        made.get('/things')
    assert made.get('/things', raise_exc=False).status_code == 409


def test_a_service_that_the_catalogue_lacks_is_named(connect, cloud):
    with pytest.raises(errors.PlacementUnavailable, match='placement.*west'):
        Allocations(connect('placement', 'region_name = west')).providers_of('consumer')
    with pytest.raises(errors.Unavailable, match='compute.*west'):
        Nova(connect('nova', 'region_name = west')).exists('server')
    assert cloud.endpoints == []


def test_microversions_have_the_name_that_the_service_knows(connect, cloud):
    # a catalogue may list a service under a name of the operator's
    Allocations(connect('placement', 'service_type = image')).providers_of('consumer')
    Nova(connect('nova', 'service_type = image')).send_events([('s', 'r', 'completed')])
    assert [headers['OpenStack-API-Version'] for headers in cloud.headers] == [
        'placement 1.39',
        'compute 2.82',
    ]


def test_threads_share_a_service_and_its_token(connect, cloud):
    made = connect('nova')
    together = threading.Barrier(32)

    def ask(number):
        together.wait(60)
        return made.get(f'/servers/{number}').json()['token']

    with futures.ThreadPoolExecutor(32) as threads:
        assert set(threads.map(ask, range(32))) == {'good'}
    assert cloud.calls.count('POST http://keystone.local/v3/auth/tokens') == 1
    assert sorted(cloud.endpoints) == sorted(
        f'GET http://compute.public.north.local/servers/{number}' for number in range(32)
    )


def test_a_service_keeps_all_that_it_needs(connect):
    made = connect('nova')
    gc.collect()
    assert made.get('/things').status_code == 200
