# SPDX-License-Identifier: Apache-2.0
"""Placement and Nova by the catalogue of a real Keystone, with application credentials."""

import uuid

import pytest
import webob
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.clients import embedded_placement, keystone
from cyborg.clients.nova import Nova
from cyborg.clients.placement import Allocations, Placement
from cyborg.cmd.api import Server
from tests.fixtures.identity import OTHER_REGION, REGION

pytestmark = [
    pytest.mark.keystone,
    # the SDK warns of what it does itself
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
    pytest.mark.filterwarnings('ignore::ResourceWarning'),
]

NOBODY = 'http://127.0.0.1:9'
HOST = 'compute1'
CREDENTIALS = """
[cloud]
auth_type = v3applicationcredential
auth_url = {url}
application_credential_id = {id}
application_credential_secret = {secret}
"""


class Guarded:
    """A service that asks Keystone about every token, as keystonemiddleware has it do."""

    def __init__(self, identity, application):
        self._identity = identity
        self._application = application
        self.tokens = []  #: what Keystone said of them
        self.paths = []
        self.is_forgetful = False  #: refuses the next valid token, as if it were revoked
        self._server = Server(self, '127.0.0.1', 0, 4)
        self.url = self._server.url

    def __call__(self, environ, start_response):
        self.paths.append(environ['PATH_INFO'])
        token = self._identity.token(environ.get('HTTP_X_AUTH_TOKEN', 'none'))
        if token is None or self.is_forgetful:
            self.is_forgetful = False
            return webob.Response(status=401, json={})(environ, start_response)
        self.tokens.append(token)
        environ['HTTP_X_AUTH_TOKEN'] = embedded_placement.TOKEN
        return self._application(environ, start_response)

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exc_info):
        self._server.stop()


def know_no_server(environ, start_response):
    """As Nova answers for a server that was deleted."""
    answer = {'itemNotFound': {'code': 404, 'message': 'no such server'}}
    return webob.Response(status=404, json=answer)(environ, start_response)


@pytest.fixture
def placement(identity, tmp_path):
    with Guarded(identity, embedded_placement.load(tmp_path / 'placement.db')) as made:
        yield made


@pytest.fixture
def nova(identity):
    with Guarded(identity, know_no_server) as made:
        yield made


@pytest.fixture
def credential(identity):
    """One of the user cyborg's; they are made by their owner alone."""
    with identity.connect('cyborg') as connection:
        owner = connection.session.get_user_id()
        made = connection.identity.create_application_credential(owner, f'agent-{uuid.uuid4()}')
        yield made
        connection.identity.delete_application_credential(owner, made, ignore_missing=True)


@pytest.fixture
def connect(identity, credential, tmp_path):
    """A service with the credential, and these lines in its section."""

    def make(section, *lines):
        conf = cfg.ConfigOpts()
        options.register(conf)
        text = CREDENTIALS.format(
            url=identity.url, id=credential.id, secret=credential.secret
        ) + '\n'.join([f'[{section}]', 'auth_section = cloud', *lines])
        (tmp_path / 'cyborg.conf').write_text(text)
        conf(['--config-file', str(tmp_path / 'cyborg.conf')])
        return keystone.connect(conf, section)

    return make


def test_an_application_credential_publishes_devices(identity, placement, connect, credential):
    identity.register(placement.url, 'placement')
    service = connect('placement', f'region_name = {REGION}')
    service.post('/resource_providers', json={'name': HOST}, microversion='1.39')
    name = f'{HOST}_card'
    card = objects.Provider(
        uuid=str(uuid.uuid4()),
        name=name,
        parent_uuid=None,
        resource_class='FPGA',
        total=1,
        reserved=0,
        traits=['CUSTOM_FPGA_INTEL'],
    )
    assert Placement(service).publish(HOST, [card]).is_complete
    found = service.get(f'/resource_providers/{card.uuid}/inventories', microversion='1.39').json()
    assert found['inventories']['FPGA']['total'] == 1
    assert {token['application_credential']['id'] for token in placement.tokens} == {credential.id}
    # nobody asked for a version document
    assert '/' not in placement.paths


@pytest.mark.parametrize(
    ('lines', 'place'),
    [
        ([f'region_name = {OTHER_REGION}'], ('public', OTHER_REGION)),
        (
            [f'region_name = {REGION}', 'valid_interfaces = admin,internal'],
            ('internal', REGION),
        ),
        (
            [f'region_name = {OTHER_REGION}', 'valid_interfaces = internal,public'],
            ('internal', OTHER_REGION),
        ),
    ],
)
def test_region_and_interface_choose_the_endpoint(identity, placement, nova, connect, lines, place):
    for kind, service in (('placement', placement), ('compute', nova)):
        for region in (REGION, OTHER_REGION):
            for interface in ('public', 'internal'):
                url = service.url if (interface, region) == place else NOBODY
                identity.register(url, kind, interface, region)
    assert Allocations(connect('placement', *lines)).providers_of(str(uuid.uuid4())) == set()
    assert not Nova(connect('nova', *lines)).exists(str(uuid.uuid4()))
    assert (len(placement.tokens), len(nova.tokens)) == (1, 1)


def test_a_token_that_was_revoked_is_replaced(identity, nova, connect):
    identity.register(nova.url, 'compute')
    client = Nova(connect('nova', f'region_name = {REGION}'))
    nova.is_forgetful = True
    assert not client.exists(str(uuid.uuid4()))


def test_a_credential_that_was_deleted_is_named(identity, placement, connect, credential):
    identity.register(placement.url, 'placement')
    with identity.connect('cyborg') as connection:
        connection.identity.delete_application_credential(
            connection.session.get_user_id(), credential
        )
    allocations = Allocations(connect('placement', f'region_name = {REGION}'))
    with pytest.raises(errors.PlacementUnavailable, match=r'Keystone does not accept.*\[cloud\]'):
        allocations.providers_of(str(uuid.uuid4()))
    assert placement.paths == []


def test_a_region_without_the_service_is_named(connect):
    for section, kind in (('placement', 'placement'), ('nova', 'compute')):
        service = connect(section, 'region_name = nowhere')
        with pytest.raises(errors.Unavailable, match=f'{kind}.*nowhere'):
            if section == 'nova':
                Nova(service).exists(str(uuid.uuid4()))
            else:
                Allocations(service).providers_of(str(uuid.uuid4()))
