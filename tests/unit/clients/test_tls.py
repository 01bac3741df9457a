# SPDX-License-Identifier: Apache-2.0
"""Placement behind TLS, with certificates of a private authority."""

import datetime
import ipaddress
import socketserver
import ssl
import threading
from concurrent import futures
from wsgiref import simple_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors
from cyborg.clients import keystone
from cyborg.clients.placement import Allocations, Placement

CONF = """
[placement]
auth_type = admin_token
endpoint = {url}
token = admin
"""


class Authority:
    """Signs certificates; ``certificate`` is its own."""

    def __init__(self, directory, name):
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = directory / f'{name}.pem'
        usage = x509.KeyUsage(*[True] + [False] * 4 + [True, True, False, False])
        self._write(
            self.certificate,
            self._sign(
                self._name,
                self._key,
                (x509.BasicConstraints(ca=True, path_length=0), True),
                (usage, True),
            ),
        )

    def issue(self, name):
        """Returns the files of a certificate for this machine and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, keyfile = (self._directory / f'{name}.{kind}' for kind in ('pem', 'key'))
        addresses = [x509.DNSName('localhost'), x509.IPAddress(ipaddress.ip_address('127.0.0.1'))]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName(addresses)
        self._write(certificate, self._sign(subject, key, (names, False)))
        keyfile.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, keyfile

    def _sign(self, subject, key, *extensions):
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, path, certificate):
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


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
        allocations = Allocations(connect(serve(), **lines))
        with pytest.raises(errors.PlacementUnavailable, match='SSL exception.*verify failed'):
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
