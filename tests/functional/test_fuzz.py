# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent, by whomever: an answer that the description allows, and never a 5xx.

CYBORG_FUZZ_EXAMPLES says how many examples each operation gets, on top of those that cover its
schema; CYBORG_FUZZ_SEED makes a run like an earlier one.
"""

import os
import pathlib
import random
import subprocess
import sys
import uuid

import jsonschema
import pytest

from cyborg.api import microversions, openapi
from cyborg.api.controllers import root
from cyborg.cmd.api import Server
from tests.fixtures import cleaning
from tests.fixtures.cloud import eventually
from tests.fixtures.fpga import FpgaHost, gbs
from tests.fixtures.persons import Person, trusting_cloud

BIN = pathlib.Path(sys.executable).parent
ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = os.environ.get('CYBORG_FUZZ_EXAMPLES')
SEED = os.environ.get('CYBORG_FUZZ_SEED', '1')
#: with a number of examples all versions are tried
VERSIONS = [str(version) for version in microversions.HISTORY]
CHECKS = (
    'not_a_server_error',
    'status_code_conformance',
    'content_type_conformance',
    'response_headers_conformance',
    'response_schema_conformance',
    'unsupported_method',
    'allow_header_conformance',
    'negative_data_rejection',
    'says_nothing_internal',
)
#: How what breaks the schema may be refused; a body that is too large is, before it is read.
SETTINGS = """\
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422]
"""
#: How fast is not asked: on a busy machine a conductor may answer late, which is a 503 otherwise.
PATIENCE = """\
[DEFAULT]
rpc_response_timeout = 600
[api]
call_monitor_timeout = 600
read_timeout = 600
"""


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    more = f'{cleaning.SETTINGS}[cleaning]\ndriver_levels = pci_driver:reset\n{PATIENCE}'
    made = trusting_cloud(tmp_path_factory.mktemp('cloud'), more=more)
    made.start()
    made.host('compute1')
    made.host('compute2', make=FpgaHost)
    made.host('compute3', make=cleaning.CleanedHost).is_broken = True
    yield made
    made.stop()


def quarantined(cloud):
    """The record of a handle that could not be cleaned, nor can be."""
    nova = Person(cloud, 'admin', vouched=True)
    card, *_ = nova.get('/deployables?hostname=compute3')['deployables']
    group = {'resources:CUSTOM_PCI': '1'}
    nova.call('POST', '/device_profiles', json=[{'name': 'card', 'groups': [group]}])
    made = nova.call('POST', '/accelerator_requests', json={'device_profile_name': 'card'})
    [arq] = made.json()['arqs']
    values = {
        'hostname': 'compute3',
        'device_rp_uuid': card['rp_uuid'],
        'instance_uuid': str(uuid.uuid4()),
    }
    patch = [{'op': 'add', 'path': f'/{name}', 'value': value} for name, value in values.items()]
    bound = nova.call('PATCH', '/accelerator_requests', json={arq['uuid']: patch})
    assert bound.status_code == 202, bound.text
    nova.call('DELETE', f'/accelerator_requests?instance={values["instance_uuid"]}')
    path = f'/devices/{card["device_uuid"]}/handbacks?result=quarantined'
    return eventually(lambda: nova.get(path)['handbacks'])[0]


@pytest.fixture(scope='module')
def targets(cloud):
    """Uuids that requests can name. They are found once: later the devices may be disabled."""
    admin = Person(cloud, 'admin')
    fake, _, region = (
        part
        for host in ('compute1', 'compute2')
        for part in admin.get(f'/deployables?hostname={host}')['deployables']
    )
    record = quarantined(cloud)
    return {
        'CYBORG_FUZZ_PROVIDER': fake['rp_uuid'],
        'CYBORG_FUZZ_DEPLOYABLE': region['uuid'],
        'CYBORG_FUZZ_IMAGE': cloud.glance.add(gbs()),
        'CYBORG_FUZZ_DEVICE': record['device_uuid'],
        'CYBORG_FUZZ_HANDLE': record['attach_handle_uuid'],
    }


@pytest.fixture(scope='module')
def server(cloud):
    made = Server(cloud.standalone.api, '127.0.0.1', 0, 4)
    made.start()
    yield made
    made.stop()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize('version', VERSIONS if EXAMPLES else VERSIONS[-1:])
def test_no_request_is_answered_in_a_way_that_is_not_described(server, targets, version, tmp_path):
    environ = os.environ | {
        **targets,
        'SCHEMATHESIS_HOOKS': 'tests.fixtures.fuzzing',
        'PYTHONPATH': str(ROOT),
        'CYBORG_FUZZ_URL': server.url,
        'CYBORG_FUZZ_SEED': SEED,
    }
    (tmp_path / 'schemathesis.toml').write_text(SETTINGS)
    run = subprocess.run(
        [
            BIN / 'schemathesis',
            'run',
            f'{server.url}/v2/openapi.json',
            '--no-color',
            '-H',
            f'OpenStack-API-Version: accelerator {version}',
            '--seed',
            SEED,
            '--checks',
            ','.join(CHECKS),
            '--warnings',
            'off',
            '--generation-database',
            'none',
            '--max-examples',
            EXAMPLES or '1',
            '--phases',
            'examples,coverage,fuzzing,stateful' if EXAMPLES else 'examples,coverage',
            '--request-timeout',
            '1200',
            '--suppress-health-check',
            'too_slow',
        ],
        cwd=tmp_path,
        env=environ,
        text=True,
        capture_output=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_what_was_stored_meanwhile_can_be_read(cloud):
    for version in microversions.HISTORY:
        document = openapi.describe(root.COLLECTIONS, version)
        for noun in root.COLLECTIONS:
            if f'/v2/{noun.path}' not in document['paths']:
                continue
            query = '?hostname=compute1' if noun.path == 'topology' else ''
            shown = Person(cloud, 'admin').get(f'/{noun.path}{query}', version=str(version))
            validator = jsonschema.Draft202012Validator(
                document | {'$ref': f'#/components/schemas/{noun.item.__name__}'}
            )
            for item in random.Random(1).sample(shown[noun.key], min(20, len(shown[noun.key]))):
                validator.validate(item)
