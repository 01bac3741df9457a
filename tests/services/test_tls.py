# SPDX-License-Identifier: Apache-2.0
"""A cloud of two regions with a certificate authority of its own: Keystone, Placement, Glance and
the broker answer over TLS only, and Cyborg has application credentials.

Keystone, Placement and Glance are real. Nova's stand-in is behind TLS, too.
"""

import contextlib
import subprocess
import uuid
from urllib import parse

import pytest
import requests
from keystoneauth1 import adapter, session

from tests.fixtures import fpga
from tests.fixtures.certificates import Authority
from tests.fixtures.cloud import eventually
from tests.fixtures.identity import OTHER_REGION, REGION, Identity
from tests.fixtures.processes import BIN, PATIENCE, Deployment
from tests.fixtures.tls import Terminator
from tools import services

pytestmark = [
    pytest.mark.timeout(600),
    # the SDK warns of what it does itself
    pytest.mark.filterwarnings('ignore::PendingDeprecationWarning'),
    pytest.mark.filterwarnings('ignore::ResourceWarning'),
]
CREDENTIALS = """
auth_type = v3applicationcredential
auth_url = {url}
application_credential_id = {id}
application_credential_secret = {secret}
cafile = {cafile}
region_name = {region}
"""
SERVICE = '[{section}]' + CREDENTIALS + 'valid_interfaces = internal\n'
API = """
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = {url}
interface = internal
"""
BROKER = """
[oslo_messaging_rabbit]
ssl = true
ssl_ca_file = {cafile}
"""
AGENT = """
[agent]
resource_provider_name = {name}
resync_interval = 2
"""


class SecuredDeployment(Deployment):
    """Finds everything by the catalogue of a Keystone; its API is called with tokens."""

    def __init__(self, directory, transport, database, placement, identity, facts):
        self._facts = facts
        super().__init__(
            directory,
            transport,
            database,
            conductor=self.section('nova') + self.section('placement') + BROKER.format(**facts),
            api=API.format(**facts) + CREDENTIALS.format(**facts) + BROKER.format(**facts),
        )
        self.placement_url = placement.url
        self.placement = adapter.Adapter(
            session.Session(auth=identity.auth('admin'), verify=str(facts['cafile'])),
            service_type='placement',
            endpoint_override=placement.url,
        )
        for header, person in (('X-Auth-Token', 'admin'), ('X-Service-Token', 'nova')):
            self.session.headers[header] = identity.connect(person).session.get_token()

    @property
    def processes(self):
        return [each for each in super().processes if each is not self.placement_process]

    def section(self, name, **changes):
        return SERVICE.format(section=name, **self._facts | changes)

    def agent_options(self, name):
        return (
            self.section('placement')
            + self.section('glance')
            + BROKER.format(**self._facts)
            + AGENT.format(name=name)
        )

    def check(self, *texts):
        """What cyborg-status says, with these lines after those of the conductor."""
        more = self.directory / f'{uuid.uuid4()}.conf'
        more.write_text('\n'.join(texts))
        return subprocess.run(
            [
                BIN / 'cyborg-status',
                *self.conductors[0].argv[1:],
                '--config-file',
                more,
                'upgrade',
                'check',
            ],
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope='module')
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp('authority'), 'authority')


@pytest.fixture(scope='module')
def behind_tls(authority):
    """Puts TLS in front of a port; None: nobody is behind it."""
    with contextlib.ExitStack() as stack:
        yield lambda name, port: stack.enter_context(Terminator(*authority.issue(name), port))


@pytest.fixture(scope='module')
def elsewhere(behind_tls):
    """Where nobody must connect."""
    return behind_tls('elsewhere', None)


@pytest.fixture(scope='module')
def identity(authority, behind_tls):
    keystone = services.keystone()
    keystone.public_url = f'{behind_tls("keystone", keystone.port).url}/v3'
    with keystone:
        made = Identity(keystone, authority.certificate)
        made.assign('cyborg', 'admin')  # as the installation guide has it
        yield made


@pytest.fixture(scope='module')
def register(identity, behind_tls, elsewhere):
    """Has the catalogue name a service behind TLS, and wrong ones beside it."""

    def do(kind, port, path=''):
        for region in (REGION, OTHER_REGION):
            for interface in ('public', 'internal'):
                identity.register(elsewhere.url, kind, interface, region)
        identity.register(f'{behind_tls(kind, port).url}{path}', kind, 'internal', REGION)

    return do


@pytest.fixture(scope='module')
def placement(identity, authority, register, tmp_path_factory):
    with services.placement(
        f'sqlite:///{tmp_path_factory.mktemp("placement")}/placement.db',
        identity.url,
        'cyborg',
        identity.password,
        'services',
        cafile=authority.certificate,
    ) as made:
        register('placement', made.port)
        yield made


@pytest.fixture(scope='module')
def glance(identity, authority, register):
    with services.glance(
        identity.url, 'glance', identity.password, 'services', cafile=authority.certificate
    ) as made:
        register('image', made.port)
        yield made


@pytest.fixture
def cloud(tmp_path, broker, database, placement, glance, identity, authority, behind_tls, register):
    with identity.connect('cyborg') as connection:
        credential = connection.identity.create_application_credential(
            connection.session.get_user_id(), f'cyborg-{uuid.uuid4()}'
        )
    transport = broker.url.replace(f':{broker.port}', f':{behind_tls("broker", broker.port).port}')
    facts = {
        'url': identity.url,
        'id': credential.id,
        'secret': credential.secret,
        'cafile': authority.certificate,
        'region': REGION,
    }
    with SecuredDeployment(
        tmp_path, transport, database.url, placement, identity, facts
    ) as deployment:
        register('compute', parse.urlsplit(deployment.nova.url).port)
        deployment.start()
        yield deployment


def upload(identity, glance, data):
    """An image in the real Glance that all may use."""
    token = identity.connect('admin').session.get_token()
    made = requests.post(
        f'{glance.url}/v2/images',
        headers={'X-Auth-Token': token},
        json={
            'name': 'bits',
            'container_format': 'bare',
            'disk_format': 'raw',
            'visibility': 'public',
        },
    ).json()['id']
    stored = requests.put(
        f'{glance.url}/v2/images/{made}/file',
        headers={'X-Auth-Token': token, 'Content-Type': 'application/octet-stream'},
        data=data,
    )
    assert stored.status_code == 204
    return made


def test_all_calls_go_over_tls_to_the_region_of_the_configuration(
    cloud, identity, glance, elsewhere
):
    # given a host with an FPGA, and an image
    cloud.host('compute1', [fpga.ADDRESS], model='8086:09c4', driver='intel_fpga_driver')
    image = upload(identity, glance, fpga.gbs())
    cloud.profile('loaded', {'resources:FPGA': '1', 'accel:bitstream_id': image})
    # when Nova binds a request
    [arq] = cloud.request('loaded')
    answer = cloud.bind(arq)
    assert answer.status_code == 202, answer.text
    # then the host has loaded the image, Placement shows it, and Nova hears of it
    [shown] = [each for each in cloud.get('/deployables')['deployables'] if each['bitstream_id']]
    assert shown['bitstream_id'] == image
    function = fpga.FUNCTION.upper().replace('-', '_')
    eventually(
        lambda: (
            f'CUSTOM_FPGA_INTEL_FUNCTION_{function}'
            in cloud.providers()[f'compute1_{fpga.ADDRESS}_region0']['traits']
        ),
        PATIENCE,
    )
    [event] = cloud.nova.wait_for_events(1, PATIENCE)
    assert (event['tag'], event['status']) == (arq['uuid'], 'completed')
    # and nobody has asked the other region, or another interface
    assert elsewhere.connections == 0


def test_the_upgrade_check_asks_the_region_of_the_configuration(cloud, elsewhere):
    before = elsewhere.connections
    done = cloud.check()
    assert 'Placement answers.' in flat(done) and 'Nova accepts events' in flat(done)
    assert elsewhere.connections == before
    # a wrong region would be noticed
    done = cloud.check(cloud.section('placement', region=OTHER_REGION))
    assert 'Correct [placement]' in flat(done) and done.returncode == 1
    assert elsewhere.connections > before


def test_the_upgrade_check_names_the_file_of_an_authority_that_is_not_ours(cloud, tmp_path):
    stranger = Authority(tmp_path, 'stranger').certificate
    for section in ('placement', 'nova'):
        done = cloud.check(cloud.section(section, cafile=stranger))
        assert f'Set [{section}] cafile to a file with the certificate' in flat(done)
        assert 'is not trusted: unable to get local issuer certificate.' in flat(done)
        assert 'Traceback' not in done.stderr and done.returncode == 1
        done = cloud.check(cloud.section(section, cafile='/none'))
        assert f'[{section}] cafile = /none cannot be read' in flat(done)
        assert 'Traceback' not in done.stderr and done.returncode == 2


def flat(done):
    """The text in the table that the command prints."""
    return ' '.join(done.stdout.replace('|', ' ').split())


def test_an_agent_that_does_not_trust_placement_says_so(cloud, tmp_path):
    stranger = Authority(tmp_path, 'stranger').certificate
    agent = cloud.agents['compute1'] = cloud._service(
        'cyborg-agent',
        'compute1',
        cloud.agent_options('compute1')
        + 'enabled_drivers = fake_driver\n'
        + cloud.section('placement', cafile=stranger),
    )
    agent.start()
    eventually(lambda: agent.said('Set [placement] cafile to a file with'), PATIENCE)
    assert agent.is_alive and not agent.said('Traceback')
