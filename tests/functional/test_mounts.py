# SPDX-License-Identifier: Apache-2.0
"""Links lead back to us from wherever we are mounted, also behind a proxy that ends TLS."""

import openstack
import pytest
import requests

from cyborg.cmd.api import Server
from tests.fixtures.cloud import Cloud
from tests.fixtures.proxy import TlsProxy

#: the SDK warns of what it does itself
pytestmark = [
    pytest.mark.any_database,
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
]

PROFILES = {f'p{number}' for number in range(5)}


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    made = Cloud(
        tmp_path_factory.mktemp('cloud'),
        more='[oslo_middleware]\nenable_proxy_headers_parsing = true\n',
    )
    made.start()
    made.host('compute1')
    for name in PROFILES:
        made.profile(name, {'resources:FPGA': '1'})
    made.request('p0')
    yield made
    made.stop()


@pytest.fixture(scope='module', params=['', '/accelerator'])
def mounted(cloud, request):
    """A server that has us below a path, as uWSGI does it."""
    path = request.param

    def application(environ, start_response):
        assert environ['PATH_INFO'].startswith(path)
        environ |= {'SCRIPT_NAME': path, 'PATH_INFO': environ['PATH_INFO'].removeprefix(path)}
        return cloud.standalone.api(environ, start_response)

    server = Server(application, '127.0.0.1', 0, 4)
    server.start()
    yield server.url, path
    server.stop()


@pytest.fixture(scope='module', params=['plain', 'tls'])
def endpoint(mounted, request, tmp_path_factory):
    """What the catalog would say, and whom to trust."""
    url, path = mounted
    if request.param == 'plain':
        yield f'{url}{path}', True
        return
    with TlsProxy(tmp_path_factory.mktemp('proxy'), url) as proxy:
        yield f'{proxy.url}{path}', str(proxy.ca)


@pytest.fixture
def get(endpoint):
    def get(url):
        answer = requests.get(
            url,
            verify=endpoint[1],
            timeout=60,
            headers={'OpenStack-API-Version': 'accelerator latest'},
        )
        assert answer.status_code == 200, f'{url}: {answer.text}'
        return answer.json()

    return get


def links(document):
    """All links of a document, however deep."""
    match document:
        case {'href': url}:
            yield url
        case dict():
            for value in document.values():
                yield from links(value)
        case list():
            for value in document:
                yield from links(value)


@pytest.mark.parametrize(
    'path',
    [
        '',
        '/v2',
        '/v2/devices',
        '/v2/deployables',
        '/v2/attributes',
        '/v2/agents',
        '/v2/accelerator_requests',
        '/v2/device_profiles?limit=2',
        '/device_profiles?limit=2',
    ],
)
def test_every_link_leads_somewhere(endpoint, get, path):
    found = set(links(get(f'{endpoint[0]}{path}')))
    assert found
    for url in found:
        assert url.startswith(endpoint[0])
        assert get(url)


def test_the_description_says_where_it_is_about(endpoint, get):
    [server] = get(f'{endpoint[0]}/v2/openapi.json')['servers']
    assert server['url'] == endpoint[0]


@pytest.mark.parametrize('suffix', ['/v2', '/v2/', ''])
def test_the_sdk_finds_its_way(endpoint, suffix):
    url, trusted = endpoint
    with openstack.connection.Connection(
        auth_type='none',
        auth={'endpoint': f'{url}{suffix}'},
        verify=trusted,
        accelerator_endpoint_override=f'{url}{suffix}',
    ) as connection:
        sdk = connection.accelerator
        assert {each.name for each in sdk.device_profiles(limit=2)} == PROFILES
        [device] = sdk.devices()
        assert sdk.get_device(device.id).hostname == 'compute1'
