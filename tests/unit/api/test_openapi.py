# SPDX-License-Identifier: Apache-2.0
"""The description of the API is true to the API."""

import jsonschema
import pytest
import referencing
import referencing.jsonschema

from cyborg import policies
from cyborg.api import microversions, openapi
from cyborg.api.controllers import root
from cyborg.api.types import json_schema

VERSIONS = list(microversions.HISTORY)
#: they are answered before they are done, with nothing to show
BINDS = {('accelerator_requests', 'patch'), ('accelerator_requests', 'patch_all')}
SINCE_2_4 = {'/v2/agents', '/v2/agents/{ref}'}


def describe(version):
    return openapi.describe(root.COLLECTIONS, version)


def every(document, key):
    """All values of a key, however deep."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from every(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from every(value, key)


def described_operations(document):
    return [operation for path in document['paths'].values() for operation in path.values()]


@pytest.mark.parametrize('path', ['/v2/openapi', '/v2/openapi.json', '/openapi.json'])
@pytest.mark.parametrize('version', ['2.0', '2.4', str(microversions.HIGHEST)])
def test_a_request_gets_the_description_of_its_version(admin, path, version):
    answer = admin.get(path, version=version)
    assert answer.status_int == 200
    assert answer.json['openapi'] == '3.1.0'
    assert answer.json['info']['version'] == version


def test_the_description_says_where_the_service_is_mounted(admin):
    answer = admin('GET', '/v2/openapi', SCRIPT_NAME='/accelerator')
    assert answer.json['servers'] == [{'url': 'http://localhost/accelerator'}]


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_every_schema_is_one_and_every_reference_leads_somewhere(version):
    document = describe(version)
    registry = referencing.Registry().with_resource(
        '',
        referencing.Resource(contents=document, specification=referencing.jsonschema.DRAFT202012),
    )
    resolver = registry.resolver()
    for ref in set(every(document, '$ref')):
        assert resolver.lookup(ref).contents
    for schema in every(document, 'schema'):
        jsonschema.Draft202012Validator.check_schema(schema)
    for schema in document['components']['schemas'].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_every_operation_has_a_name_of_its_own_a_rule_and_a_summary(version):
    known = {rule.name for rule in policies.list_rules()}
    found = described_operations(describe(version))
    assert len({operation['operationId'] for operation in found}) == len(found)
    for operation in found:
        assert operation['x-policy'] in known
        assert operation['summary'].endswith('.')
        assert {'401', '403', '406', '503'} < operation['responses'].keys()


def test_a_version_has_what_the_ones_before_it_had():
    before = {}
    for version in VERSIONS:
        paths = describe(version)['paths']
        for path, methods in before.items():
            assert methods.keys() <= paths[path].keys()
        before = paths


def test_what_is_new_is_not_in_older_versions():
    older, newer = describe(microversions.Version(2, 3)), describe(microversions.Version(2, 4))
    assert newer['paths'].keys() - older['paths'].keys() == SINCE_2_4
    assert not [since for since in every(older['paths'], json_schema.SINCE) if since > '2.3']
    assert 'device_uuid' not in older['components']['schemas']['Deployable']['properties']
    assert 'device_uuid' not in older['components']['schemas']['Deployable']['required']
    assert 'device_uuid' in newer['components']['schemas']['Deployable']['required']
    assert 'patch' not in newer['paths']['/v2/device_profiles/{ref}']


@pytest.mark.parametrize('key, taking', [('colour', VERSIONS[:4]), ('enabled', VERSIONS[5:])])
def test_the_description_says_which_versions_take_a_key_of_a_new_profile(key, taking):
    def takes(version):
        body = describe(version)['paths']['/v2/device_profiles']['post']['requestBody']
        schema = body['content']['application/json']['schema']
        return jsonschema.Draft202012Validator(schema).is_valid(
            [{'name': 'gzip', 'groups': [{'resources:FPGA': '1'}], key: True}]
        )

    assert [version for version in VERSIONS if takes(version)] == taking


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_what_is_shown_leads_to_what_can_be_done_with_it(version):
    document = describe(version)
    known = {operation['operationId']: operation for operation in described_operations(document)}
    for links in every(document['paths'], 'links'):
        for link in links.values():
            names = {each.get('name') for each in known[link['operationId']]['parameters']}
            assert link['parameters'].keys() <= names
    made = document['paths']['/v2/accelerator_requests']['post']['responses']['201']['links']
    assert made['delete']['parameters'] == {'uuid': '$response.body#/arqs/0/uuid'}


@pytest.mark.parametrize('noun', root.COLLECTIONS, ids=lambda noun: noun.path)
def test_an_answer_may_be_only_what_is_described(noun):
    for name, operation in openapi.operations(noun, microversions.HIGHEST):
        is_silent = operation.status in (204, 400) or (noun.path, name) in BINDS
        assert (operation.shown is None) == is_silent, name
