# SPDX-License-Identifier: Apache-2.0
"""Placement behind TLS, with certificates of a private authority."""

import socketserver
import ssl
import threading
from concurrent import futures
from wsgiref import simple_server

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.clients import keystone
from cyborg.clients.placement import Allocations, Placement
from tests.fixtures.certificates import Authority

CONF = """
[placement]
auth_type = admin_token
endpoint = {url}
token = admin
"""


class Handler(simple_server.WSGIRequestHandler):
    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    """An application behind TLS."""

    daemon_threads = True

    def __init__(self, application, context):
        super().__init__(('127.0.0.1', 0), Handler)
        self.set_app(application)
        self._context = context
        self.url = f'https://127.0.0.1:{self.server_port}'

    def finish_request(self, request, client_address):
        # in the thread of the connection: a client that refuses us hurts nobody else
        try:
            with self._context.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        except (ssl.SSLError, ConnectionError):
            pass


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, 'authority')


@pytest.fixture
def serve(service, authority):
    """Placement behind TLS; it may ask for a certificate of its clients."""
    servers = []

    def start(asks_for_certificates=False):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue('placement'))
        if asks_for_certificates:
            context.load_verify_locations(authority.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        servers.append(Server(service.application, context))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return servers[-1].url

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def connect(tmp_path):
    def make(url, **lines):
        conf = cfg.ConfigOpts()
        options.register(conf)
        text = ''.join(f'{name} = {value}\n' for name, value in lines.items())
        (tmp_path / 'tls.conf').write_text(CONF.format(url=url) + text)
        conf(['--config-file', str(tmp_path / 'tls.conf')])
        return keystone.connect(conf, 'placement')

    return make


def test_a_private_authority_is_trusted_by_cafile(serve, connect, authority, service, wanted):
    client = Placement(connect(serve(), cafile=authority.certificate))
    assert client.publish('compute1', [wanted('fpga')]).is_complete
    assert service.names() == {'compute1_fpga'}


def test_who_is_not_trusted_gets_no_token_of_ours(serve, connect, tmp_path):
    (tmp_path / 'others').mkdir()
    stranger = Authority(tmp_path / 'others', 'stranger')
    for lines in ({}, {'cafile': stranger.certificate}):
        url = serve()
        allocations = Allocations(connect(url, **lines))
        with pytest.raises(errors.PlacementUnavailable) as raised:
            allocations.providers_of('consumer')
        assert raised.value.faultstring == (
            f'A call to Placement failed: The certificate of {url} is not trusted: unable to get '
            'local issuer certificate. Set [placement] cafile to a file with the certificate of '
            'its authority.'
        )


@pytest.mark.parametrize('option', ['cafile', 'certfile', 'keyfile'])
def test_a_file_that_is_not_there_is_named(serve, connect, authority, option):
    certificate, key = authority.issue('cyborg')
    files = {'cafile': authority.certificate, 'certfile': certificate, 'keyfile': key}
    with pytest.raises(errors.ConfigError, match=rf'\[placement\] {option} = /none cannot be read'):
        connect(serve(), **files | {option: '/none'})


def test_a_file_without_a_certificate_is_told(serve, connect, tmp_path):
    (tmp_path / 'empty.pem').touch()
    url = serve()
    allocations = Allocations(connect(url, cafile=tmp_path / 'empty.pem'))
    with pytest.raises(errors.PlacementUnavailable, match=f'SSL exception connecting to {url}'):
        allocations.providers_of('consumer')


def test_a_server_may_ask_for_our_certificate(serve, connect, authority):
    url = serve(asks_for_certificates=True)
    certificate, key = authority.issue('cyborg')
    known = connect(url, cafile=authority.certificate, certfile=certificate, keyfile=key)
    assert Allocations(known).providers_of('consumer') == set()
    with pytest.raises(errors.PlacementUnavailable):
        Allocations(connect(url, cafile=authority.certificate)).providers_of('consumer')


def test_threads_share_a_session_over_tls(serve, connect, authority):
    allocations = Allocations(connect(serve(), cafile=authority.certificate))
    # more of them than the pool keeps connections
    with futures.ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(allocations.providers_of, map(str, range(48))))
    assert answers == [set()] * 48
