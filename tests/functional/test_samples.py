# SPDX-License-Identifier: Apache-2.0
"""The samples of the API reference are what the service says.

A story is told with every operation; what is asked and answered must equal the samples, but for
what differs by its nature: uuids, times, numbers of rows. To write them anew, run this with
CYBORG_WRITE_SAMPLES=1.
"""

import json
import os
import pathlib
import re
import uuid

import jsonschema
import pytest

from cyborg.api import microversions, openapi
from cyborg.api.controllers import root
from tests.fixtures.cleaning import CARDS, SETTINGS, CleanedHost
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.fpga import FUNCTION, FpgaHost, gbs

SAMPLES = pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'api-ref' / 'samples'
SHOWN_URL = 'https://cloud.example/accelerator'
UUID = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
MOMENT = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00')
ROWS = ('device_id', 'deployable_id', 'parent_id', 'root_id')
#: nobody may, whatever they ask
REFUSED = {'attributes.delete_all'}
DOCUMENT = openapi.describe(root.COLLECTIONS, microversions.HIGHEST)


class Story:
    """Everything that is asked, by operation, and what comes of it."""

    def __init__(self, cloud):
        self._cloud = cloud
        self._uuids = {}
        self.samples = {}

    def ask(self, operation, method, path, body=None):
        response = self._cloud.call(method, path, json=body)
        assert response.status_code < 300, response.text
        shown = response.json() if response.content else None
        self.samples[operation] = self._plain(
            {
                'request': {'method': method, 'path': f'/v2{path}', 'body': body},
                'response': {'status': response.status_code, 'body': shown},
            }
        )
        return shown

    def _plain(self, value, name=None):
        """The same in every run."""
        match value:
            case dict():
                return {self._plain(key): self._plain(each, key) for key, each in value.items()}
            case list():
                return [self._plain(each) for each in value]
            case str():
                text = UUID.sub(lambda found: self._known(found[0]), value)
                return MOMENT.sub('2026-03-01T10:00:00+00:00', text).replace(Cloud.url, SHOWN_URL)
            case int() if name in ROWS:
                return 1
            case float():  # how long something took
                return 0.25
        return value

    def _known(self, text):
        number = self._uuids.setdefault(text, len(self._uuids))
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f'{SHOWN_URL}/{number}'))


def tell(cloud):
    story = Story(cloud)
    ask = story.ask
    fpga = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
    profile = ask(
        'device_profiles.post',
        'POST',
        '/device_profiles',
        [{'name': 'gzip-offload', 'description': 'Compression in an FPGA', 'groups': [fpga]}],
    )
    ask('device_profiles.get_all', 'GET', '/device_profiles?name=gzip-offload')
    ask('device_profiles.get_one', 'GET', '/device_profiles/gzip-offload')
    ask('device_profiles.availability', 'GET', '/device_profiles/gzip-offload/availability')
    [device] = ask('devices.get_all', 'GET', '/devices?type=FPGA')['devices']
    ask('devices.get_one', 'GET', f'/devices/{device["uuid"]}')
    [part] = ask('deployables.get_all', 'GET', '/deployables?hostname=compute1')['deployables']
    ask('deployables.get_one', 'GET', f'/deployables/{part["uuid"]}')
    ask('agents.get_all', 'GET', '/agents?alive=true')
    ask('agents.get_one', 'GET', '/agents/compute1')
    ask('capacity.get_all', 'GET', '/capacity')
    shelf = ask(
        'attributes.post',
        'POST',
        '/attributes',
        {'deployable_id': part['uuid'], 'key': 'shelf', 'value': '7'},
    )
    cloud.call(
        'POST',
        '/attributes',
        json={
            'deployable_id': part['uuid'],
            'parent_uuid': shelf['uuid'],
            'key': 'row',
            'value': 'b',
        },
    )
    ask('attributes.get_all', 'GET', '/attributes?key=rc')
    ask('attributes.get_one', 'GET', f'/attributes/{shelf["uuid"]}?nested=true')
    ask('attributes.delete', 'DELETE', f'/attributes/{shelf["uuid"]}')
    name = {'device_profile_name': 'gzip-offload'}
    [arq] = ask('accelerator_requests.post', 'POST', '/accelerator_requests', name)['arqs']
    instance = str(uuid.uuid4())
    add = [
        {'op': 'add', 'path': '/hostname', 'value': 'compute1'},
        {'op': 'add', 'path': '/device_rp_uuid', 'value': part['rp_uuid']},
        {'op': 'add', 'path': '/instance_uuid', 'value': instance},
    ]
    remove = [{'op': 'remove', 'path': each['path']} for each in add]
    ask('accelerator_requests.patch_all', 'PATCH', '/accelerator_requests', {arq['uuid']: add})
    ask('accelerator_requests.get_all', 'GET', f'/accelerator_requests?instance={instance}')
    ask('accelerator_requests.get_one', 'GET', f'/accelerator_requests/{arq["uuid"]}')
    ask(
        'accelerator_requests.patch',
        'PATCH',
        f'/accelerator_requests/{arq["uuid"]}',
        {arq['uuid']: remove},
    )
    # of the only request so far, so that there is one row
    ask('usage.get_all', 'GET', '/usage?start=2026-01-01')
    ask('accelerator_requests.history', 'GET', f'/accelerator_requests/{arq["uuid"]}/history')
    ask('accelerator_requests.delete', 'DELETE', f'/accelerator_requests/{arq["uuid"]}')
    ask('accelerator_requests.delete_all', 'DELETE', f'/accelerator_requests?instance={instance}')
    cloud.host('compute2', make=FpgaHost)
    region = next(
        each
        for each in cloud.get('/deployables?hostname=compute2')['deployables']
        if each['is_programmable']
    )
    path, program = (
        f'/deployables/{region["uuid"]}/program',
        [{'op': 'replace', 'path': '/program', 'value': [{'image_uuid': cloud.glance.add(gbs())}]}],
    )
    # not before what it does now is known, so that the next answer shows the same everywhere
    cloud.call('PATCH', path, json=program)
    eventually(lambda: FUNCTION in cloud.get(f'/deployables/{region["uuid"]}')['attributes_list'])
    ask('deployables.program', 'PATCH', path, program)
    ask('deployables.program_again', 'PATCH', f'{path}/{region["uuid"]}', program)
    _decide(cloud, ask)
    ask('devices.disable', 'POST', f'/devices/{device["uuid"]}/disable')
    ask('devices.enable', 'POST', f'/devices/{device["uuid"]}/enable')
    ask(
        'device_profiles.patch',
        'PATCH',
        f'/device_profiles/{profile["uuid"]}',
        {'name': 'gzip', 'enabled': False, 'projects': ['2f0e8c5d9b5a4f0e9d6f3c1f6e0b7a51']},
    )
    ask('device_profiles.delete', 'DELETE', '/device_profiles/gzip')
    cloud.profile('bzip', fpga)
    ask('device_profiles.delete_all', 'DELETE', '/device_profiles?name=bzip')
    # the last one, because it shows many handles, and uuids are numbered as they appear
    cloud.profile('held', fpga)
    assert cloud.bind(cloud.request('held')).status_code == 202
    topology = ask('topology.get_all', 'GET', '/topology?hostname=compute1')
    assert topology['hosts'][0]['devices'][0]['deployables'][0]['units'][0]['arq_uuid']
    return story.samples


def _decide(cloud, ask):
    """A handle cannot be cleaned, in vain a second time, and is given out as it is."""
    host = cloud.host('compute3', make=CleanedHost, cards=CARDS[:1])
    host.is_broken = True
    [card] = cloud.get('/devices?hostname=compute3')['devices']
    quarantined = f'/devices/{card["uuid"]}/handbacks?result=quarantined'
    cloud.profile('card', {'resources:CUSTOM_PCI': '1'})
    [arq] = cloud.request('card')
    cloud.bind(arq, host='compute3')
    cloud.call('DELETE', f'/accelerator_requests?arqs={arq["uuid"]}')
    eventually(lambda: cloud.get(quarantined)['handbacks'])
    [record] = ask('devices.handbacks', 'GET', quarantined)['handbacks']
    path = f'/devices/{card["uuid"]}/handles/{record["attach_handle_uuid"]}'
    ask('devices.clean_handle', 'POST', f'{path}/clean')
    eventually(lambda: cloud.get(quarantined)['handbacks'])
    reason = {'reason': 'The card was switched off and on again.'}
    ask('devices.release_handle', 'POST', f'{path}/release', reason)


@pytest.fixture(scope='module')
def told(tmp_path_factory):
    more = f'{SETTINGS}[cleaning]\ndriver_levels = pci_driver:reset\n'
    cloud = Cloud(tmp_path_factory.mktemp('cloud'), more=more)
    cloud.start()
    cloud.host('compute1')
    inventory = cloud.agent().inventory
    inventory.stop()
    inventory.sync()  # only the second report says that Placement has what the first one told
    samples = tell(cloud)
    cloud.stop()
    if os.environ.get('CYBORG_WRITE_SAMPLES'):
        SAMPLES.mkdir(parents=True, exist_ok=True)
        for name, sample in samples.items():
            (SAMPLES / f'{name}.json').write_text(json.dumps(sample, indent=2) + '\n')
    return samples


def described():
    return {
        operation['operationId']: operation
        for path in DOCUMENT['paths'].values()
        for operation in path.values()
    }


def test_every_operation_has_a_sample_and_nothing_else_has(told):
    assert told.keys() == described().keys() - REFUSED
    assert {path.stem for path in SAMPLES.iterdir()} == told.keys()


@pytest.mark.parametrize('operation', sorted(described().keys() - REFUSED))
def test_the_service_says_what_its_sample_says(told, operation):
    assert json.loads((SAMPLES / f'{operation}.json').read_text()) == told[operation]


@pytest.mark.parametrize('operation', sorted(described().keys() - REFUSED))
def test_a_sample_is_as_the_description_says(told, operation):
    sample, known = told[operation], described()[operation]
    answer = known['responses'][str(sample['response']['status'])]
    for schema, shown in (
        (known.get('requestBody'), sample['request']['body']),
        (answer if 'content' in answer else None, sample['response']['body']),
    ):
        if schema is None:
            assert shown is None
        else:
            jsonschema.Draft202012Validator(
                DOCUMENT | schema['content']['application/json']['schema']
            ).validate(shown)
