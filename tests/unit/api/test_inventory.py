# SPDX-License-Identifier: Apache-2.0
"""Devices, deployables, attributes and agents over HTTP."""

import json

import jsonschema
import pytest

from cyborg import errors, objects
from cyborg.api import microversions, openapi
from cyborg.api.controllers import root
from tests.unit.api.conftest import (
    agent,
    attribute,
    conforms,
    deployable,
    device,
    fault,
    hand_back,
    uuid,
)


@pytest.mark.parametrize('version', microversions.HISTORY)
def test_a_device_is_shown_bare_and_as_its_version_has_it(admin, conductor, version):
    conductor.items['devices'] = [device(1)]
    answer = admin.get(f'/v2/devices/{uuid(1)}', version=str(version))
    conforms(answer, 'Device')
    assert json.loads(answer.json['std_board_info']) == {'product_id': '1eb8'}
    assert answer.json['vendor_board_info'] is None


def test_devices_are_filtered_by_the_conductor(admin, conductor):
    answer = admin.get('/v2/devices?type=GPU&vendor=10de&hostname=compute1')
    assert (answer.status_int, answer.json) == (200, {'devices': []})
    [(_, arguments)] = conductor.calls
    assert arguments['filters'] == {'type': 'GPU', 'vendor': '10de', 'hostname': 'compute1'}


def test_an_unknown_type_is_an_empty_list(admin):
    answer = admin.get('/v2/devices?type=TOASTER')
    assert (answer.status_int, answer.json) == (200, {'devices': []})


@pytest.mark.parametrize('path', ['', '/enable', '/disable'])
@pytest.mark.parametrize('ref', ['toaster', uuid(9)])
def test_a_device_that_is_not_there_is_not_found(admin, conductor, ref, path):
    conductor.error = errors.DeviceNotFound(uuid=ref)
    answer = admin('POST' if path else 'GET', f'/v2/devices/{ref}{path}')
    assert answer.status_int == 404
    assert ref in fault(answer)


@pytest.mark.parametrize('action, status', [('enable', 'enabled'), ('disable', 'maintaining')])
@pytest.mark.parametrize('body', [None, {'reason': 'dust'}])
def test_a_device_is_put_out_of_and_back_into_service(admin, conductor, action, status, body):
    answer = admin.post(f'/v2/devices/{uuid(1).upper()}/{action}', body)
    assert (answer.status_int, answer.body) == (204, b'')
    assert conductor.calls == [('set_device_status', {'uuid': uuid(1), 'status': status})]


# -- hand-backs ------------------------------------------------------------------------------


HANDBACKS = f'/v2/devices/{uuid(1)}/handbacks'
HANDLE = f'/v2/devices/{uuid(1)}/handles/{uuid(3)}'


def test_a_hand_back_shows_each_step_and_how_it_ended(admin, conductor):
    done = objects.Step(name='verify', seconds=0.25)
    conductor.items['hand_backs'] = [hand_back(1), hand_back(2, state='done', steps=[done])]
    answer = admin.get(HANDBACKS, version='2.9')
    assert answer.status_int == 200
    first, second = answer.json['handbacks']
    assert first['steps'] == [
        {'name': 'reset', 'result': 'failed', 'seconds': 0.5, 'reason': 'It burns.'}
    ]
    assert second['steps'] == [
        {'name': 'verify', 'result': 'done', 'seconds': 0.25, 'reason': None}
    ]
    described = openapi.describe(root.COLLECTIONS, microversions.Version(2, 9))
    shown = described['paths']['/v2/devices/{uuid}/handbacks']['get']['responses']['200']
    jsonschema.validate(answer.json, shown['content']['application/json']['schema'])


def test_hand_backs_are_filtered_by_the_conductor(admin, conductor):
    query = f'result=failed&attach_handle_uuid={uuid(3)}&arq_uuid={uuid(4)}&project_id=p'
    answer = admin.get(f'{HANDBACKS}?{query}&limit=7', version='2.9')
    assert (answer.status_int, answer.json) == (200, {'handbacks': []})
    [(_, arguments)] = conductor.calls
    assert arguments['filters'] == {
        'device_uuid': uuid(1),
        'state': 'failed',
        'handle_uuid': uuid(3),
        'arq_uuid': uuid(4),
        'project_id': 'p',
    }


def test_a_page_of_hand_backs_leads_to_the_next_of_the_same_device(admin, conductor):
    conductor.items['hand_backs'] = [hand_back(1), hand_back(2)]
    answer = admin.get(f'{HANDBACKS}?limit=1&result=quarantined', version='2.9')
    [link] = answer.json['handbacks_links']
    assert link['rel'] == 'next'
    assert link['href'].endswith(f'{HANDBACKS}?limit=1&result=quarantined&marker={uuid(1)}')


@pytest.mark.parametrize(
    'query', ['result=dirty', 'attach_handle_uuid=x', 'colour=red', 'limit=0', 'sort_key=seconds']
)
def test_a_query_of_hand_backs_that_makes_no_sense_is_refused(admin, conductor, query):
    answer = admin.get(f'{HANDBACKS}?{query}', version='2.9')
    assert answer.status_int == 400
    assert fault(answer) and not conductor.calls


def test_a_handle_is_cleaned_again(admin, conductor):
    handle = 'abcdef00-0000-4000-8000-000000000009'
    answer = admin.post(f'/v2/devices/{uuid(1)}/handles/{handle.upper()}/clean', version='2.9')
    assert (answer.status_int, answer.json['result']) == (202, 'open')
    assert conductor.calls == [('clean_handle', {'device_uuid': uuid(1), 'handle_uuid': handle})]


def test_a_handle_is_released_for_a_reason(admin, conductor):
    answer = admin.post(f'{HANDLE}/release', {'reason': ' Erased. '}, version='2.9')
    assert (answer.status_int, answer.json['decision']) == (200, 'release')
    assert conductor.calls == [
        (
            'release_handle',
            {'device_uuid': uuid(1), 'handle_uuid': uuid(3), 'reason': 'Erased.'},
        )
    ]


@pytest.mark.parametrize(
    'body',
    [{}, [], {'reason': None}, {'reason': ''}, {'reason': ' \n'}, {'reason': 'x' * 1025}]
    + [{'reason': 'x', 'colour': 'red'}, {'reason': 'a\0b'}, None],
)
def test_a_release_without_a_proper_reason_is_refused(admin, conductor, body):
    answer = admin.post(f'{HANDLE}/release', body, version='2.9')
    assert answer.status_int == 400
    assert fault(answer) and not conductor.calls


@pytest.mark.parametrize('path', [f'x/handles/{uuid(3)}', f'{uuid(1)}/handles/x'])
@pytest.mark.parametrize('action', ['clean', 'release'])
def test_what_is_no_uuid_names_no_handle(admin, conductor, path, action):
    answer = admin.post(f'/v2/devices/{path}/{action}', {'reason': 'x'}, version='2.9')
    assert answer.status_int == 404
    assert fault(answer) and not conductor.calls


@pytest.mark.parametrize(
    'method, path', [('GET', HANDBACKS), ('POST', f'{HANDLE}/clean'), ('POST', f'{HANDLE}/release')]
)
def test_there_are_no_hand_backs_before_2_9(admin, conductor, method, path):
    answer = admin(method, path, {'reason': 'x'} if method == 'POST' else None, version='2.8')
    assert answer.status_int == 404
    assert '2.9' in fault(answer)
    assert not conductor.calls


# -- deployables -----------------------------------------------------------------------------


def test_a_deployable_is_shown_bare(admin, conductor):
    conductor.items['deployables'] = [deployable(1)]
    answer = admin.get(f'/v2/deployables/{uuid(1)}')
    conforms(answer, 'Deployable')
    assert json.loads(answer.json['attributes_list']) == [{'rc': 'FPGA'}]
    assert answer.json['links'] == [
        {'rel': 'self', 'href': f'http://localhost/v2/deployables/{uuid(1)}'},
        {'rel': 'bookmark', 'href': f'http://localhost/deployables/{uuid(1)}'},
    ]


@pytest.mark.parametrize('noun', ['deployables', 'attributes'])
def test_a_malformed_uuid_is_refused_and_an_unknown_one_not_found(admin, noun):
    assert admin.get(f'/v2/{noun}/toaster').status_int == 400
    assert admin.get(f'/v2/{noun}/{uuid(9)}').status_int == 404


def test_an_attribute_is_shown_bare(admin, conductor):
    conductor.items['attributes'] = [attribute(1)]
    answer = admin.get(f'/v2/attributes/{uuid(1)}')
    conforms(answer, 'Attribute')
    assert (answer.json['deployable_id'], answer.json['key'], answer.json['value']) == (
        3,
        'rc',
        'FPGA',
    )


@pytest.mark.parametrize(
    'query, filters',
    [
        ('', {}),
        ('?key=rc', {'key': 'rc'}),
        ('?deployable_id=3', {'deployable_id': 3}),
        (f'?deployable_id={uuid(5).upper()}&key=rc', {'deployable_uuid': uuid(5), 'key': 'rc'}),
    ],
)
def test_attributes_are_filtered_by_the_conductor(admin, conductor, query, filters):
    assert admin.get(f'/v2/attributes{query}').status_int == 200
    [(_, arguments)] = conductor.calls
    assert arguments['filters'] == filters


@pytest.mark.parametrize('ref', ['three', '', '-1', '3.5'])
def test_a_deployable_is_a_number_or_a_uuid(admin, conductor, ref):
    assert admin.get(f'/v2/attributes?deployable_id={ref}').status_int == 400
    body = {'deployable_id': ref, 'key': 'k', 'value': 'v'}
    assert admin.post('/v2/attributes', body).status_int == 400
    assert not conductor.calls


def test_a_number_beyond_all_rows_is_not_found(admin, conductor):
    body = {'deployable_id': 2**31, 'key': 'k', 'value': 'v'}
    assert admin.post('/v2/attributes', body).status_int == 404
    assert not conductor.calls


@pytest.mark.parametrize(
    'ref, passed', [(3, '3'), ('3', '3'), ('03', '3'), (uuid(5).upper(), uuid(5))]
)
@pytest.mark.parametrize('wrap', [lambda fields: fields, lambda fields: {'attribute': fields}])
def test_an_attribute_is_created_from_both_forms(admin, conductor, ref, passed, wrap):
    answer = admin.post(
        '/v2/attributes',
        wrap({'deployable_id': ref, 'key': 'colour', 'value': 'red', 'uuid': None}),
    )
    assert answer.status_int == 201
    conforms(answer, 'Attribute')
    assert conductor.calls == [
        (
            'create_attribute',
            {'deployable': passed, 'key': 'colour', 'value': 'red', 'parent_uuid': None},
        )
    ]


FIELDS = {'deployable_id': 3, 'key': 'k', 'value': 'v'}


@pytest.mark.parametrize(
    'body, word',
    [
        ([], 'an object'),
        ({}, 'deployable_id, key, value'),
        ({'attribute': {}}, 'key'),
        ({'attribute': None}, 'an object'),
        ({**FIELDS, 'key': ''}, 'empty'),
        ({**FIELDS, 'key': 'x' * 256}, '255'),
        ({**FIELDS, 'key': 5}, 'a string'),
        ({**FIELDS, 'value': None}, 'a string'),
        ({**FIELDS, 'deployable_id': None}, 'a string'),
        ({**FIELDS, 'value': 'x' * 16384}, 'longer'),
    ],
)
def test_an_attribute_needs_all_its_fields(admin, conductor, body, word):
    answer = admin.post('/v2/attributes', body)
    assert answer.status_int == 400
    assert word in fault(answer)
    assert not conductor.calls


def test_an_attribute_is_deleted_by_its_uuid(admin, conductor):
    assert admin.delete(f'/v2/attributes/{uuid(1)}').status_int == 204
    assert conductor.calls == [('delete_attribute', {'uuid': uuid(1)})]
    assert admin.delete('/v2/attributes/toaster').status_int == 400
    assert admin.delete('/v2/attributes').status_int == 400
    assert admin.delete('/v2/attributes/').status_int == 400
    assert len(conductor.calls) == 1


# -- since 2.4 -------------------------------------------------------------------------------


@pytest.mark.parametrize('version, shows', [('2.3', False), ('2.4', True)])
def test_things_refer_to_others_by_uuids_since_2_4(admin, conductor, version, shows):
    conductor.items |= {
        'deployables': [deployable(1, parent_uuid=uuid(8))],
        'attributes': [attribute(1)],
        'devices': [device(1, fault='It burns.')],
    }
    part = admin.get(f'/v2/deployables/{uuid(1)}', version=version)
    fact = admin.get(f'/v2/attributes/{uuid(1)}', version=version)
    card = admin.get(f'/v2/devices/{uuid(1)}', version=version)
    for answer, name in ((part, 'Deployable'), (fact, 'Attribute'), (card, 'Device')):
        conforms(answer, name)
    assert [part.json.get(name) for name in ('device_uuid', 'parent_uuid', 'root_uuid')] == (
        [uuid(77), uuid(8), None] if shows else [None] * 3
    )
    assert ('root_uuid' in part.json, 'parent_uuid' in fact.json) == (shows, shows)
    assert fact.json.get('deployable_uuid') == (uuid(33) if shows else None)
    assert card.json.get('fault') == ('It burns.' if shows else None)


def test_nested_attributes_are_shown_on_request(admin, conductor):
    below = attribute(2, parent_uuid=uuid(1), children=[attribute(3, parent_uuid=uuid(2))])
    conductor.items['attributes'] = [attribute(1, children=[below])]
    answer = admin.get('/v2/attributes?nested=true', version='2.4')
    [top] = conforms(answer, 'Attribute', 'attributes')
    assert top['children'][0]['children'][0]['uuid'] == uuid(3)
    assert 'children' not in admin.get(f'/v2/attributes/{uuid(1)}', version='2.4').json
    assert 'children' in admin.get(f'/v2/attributes/{uuid(1)}?nested=TRUE', version='2.4').json


@pytest.mark.parametrize(
    'path, query',
    [
        ('attributes', 'nested=true'),
        ('attributes', f'parent_uuid={uuid(1)}'),
        ('deployables', f'device_uuid={uuid(1)}'),
        ('deployables', 'hostname=x'),
        ('devices', 'is_missing=true'),
    ],
)
def test_a_filter_is_as_old_as_the_field_it_is_about(admin, path, query):
    assert admin.get(f'/v2/{path}?{query}', version='2.3').status_int == 400
    assert admin.get(f'/v2/{path}?{query}', version='2.4').status_int == 200


@pytest.mark.parametrize(
    'query, filters',
    [
        ('name=compute1_x', {'name': 'compute1_x'}),
        ('device_id=7&driver_name=fake', {'device_id': 7, 'driver_name': 'fake'}),
        (f'rp_uuid={uuid(9).upper()}', {'rp_uuid': uuid(9)}),
        (f'parent_uuid={uuid(9)}&hostname=x', {'parent_uuid': uuid(9), 'hostname': 'x'}),
    ],
)
def test_deployables_are_filtered_by_the_conductor(admin, conductor, query, filters):
    assert admin.get(f'/v2/deployables?{query}', version='2.4').status_int == 200
    [(_, arguments)] = conductor.calls
    assert arguments['filters'] == filters


@pytest.mark.parametrize(
    'query', ['device_id=first', 'device_id=2147483648', 'rp_uuid=x', 'is_missing=perhaps']
)
def test_a_filter_that_cannot_match_by_its_form_is_refused(admin, conductor, query):
    noun = 'devices' if 'missing' in query else 'deployables'
    answer = admin.get(f'/v2/{noun}?{query}', version='2.4')
    assert answer.status_int == 400
    assert query.partition('=')[0] in fault(answer)
    assert not conductor.calls


def test_a_deployable_by_number_and_by_uuid_must_be_the_same(admin, conductor):
    url = f'/v2/attributes?deployable_id={uuid(1)}&deployable_uuid='
    assert admin.get(url + uuid(2), version='2.4').status_int == 400
    assert admin.get(url + uuid(1), version='2.4').status_int == 200


def test_a_number_beyond_all_rows_has_no_attributes(admin, conductor):
    answer = admin.get(f'/v2/attributes?deployable_id={2**31}')
    assert (answer.status_int, answer.json) == (200, {'attributes': []})


def test_an_attribute_is_put_below_another_since_2_4(admin, conductor):
    answer = admin.post('/v2/attributes', FIELDS | {'parent_uuid': uuid(9).upper()}, version='2.4')
    assert answer.status_int == 201
    [(_, arguments)] = conductor.calls
    assert arguments['parent_uuid'] == uuid(9)


@pytest.mark.parametrize(
    'wrap', [lambda fields: fields, lambda fields: {'attribute': fields}], ids=['bare', 'wrapped']
)
def test_an_attribute_is_not_put_below_another_before_2_4(admin, conductor, wrap):
    body = wrap(FIELDS | {'parent_uuid': uuid(9)})
    answer = admin.post('/v2/attributes', body, version='2.3')
    assert answer.status_int == 400
    assert 'parent_uuid needs version 2.4 of this API' in fault(answer)
    assert not conductor.calls


def test_an_attribute_below_something_that_is_no_uuid_is_refused(admin):
    body = FIELDS | {'parent_uuid': 'first'}
    assert admin.post('/v2/attributes', body, version='2.4').status_int == 400


@pytest.mark.parametrize('ref', [uuid(1), uuid(1).upper(), 'compute1'])
def test_an_agent_is_shown_by_uuid_or_host(admin, conductor, ref):
    conductor.items['agents'] = [agent(1)]
    if ref != ref.lower():
        conductor.items['agents'] = [agent(1, uuid=ref.lower())]
    answer = admin.get(f'/v2/agents/{ref}', version='2.4')
    shown = conforms(answer, 'Agent')
    assert (shown['hostname'], shown['alive'], shown['ready']) == ('compute1', True, True)
    assert shown['drivers'] == [{'name': 'fake_driver', 'status': 'failed', 'error': 'It burns.'}]


@pytest.mark.parametrize('ref', ['compute9', 'x' * 256, uuid(9)])
def test_an_agent_that_is_not_there_is_not_found(admin, ref):
    answer = admin.get(f'/v2/agents/{ref}', version='2.4')
    assert answer.status_int == 404
    assert ref[:64] in fault(answer)


def test_agents_are_filtered_by_the_conductor(admin, conductor):
    admin.get('/v2/agents?alive=false&ready=True&hostname=compute1', version='2.4')
    [(_, arguments)] = conductor.calls
    assert arguments['filters'] == {'is_alive': False, 'is_ready': True, 'hostname': 'compute1'}


@pytest.mark.parametrize('path', ['/v2/agents', '/v2/agents/compute1'])
def test_there_are_no_agents_before_2_4(admin, conductor, path):
    answer = admin.get(path, version='2.3')
    assert answer.status_int == 404
    assert '2.4' in fault(answer)
    assert not conductor.calls


# -- programming -----------------------------------------------------------------------------


IMAGE = uuid(9)


def program(image=IMAGE, op='replace', path='/program'):
    return [{'path': path, 'op': op, 'value': [{'image_uuid': image}]}]


@pytest.mark.parametrize('path', ['program', f'program/{uuid(1)}'])
@pytest.mark.parametrize('op', ['add', 'replace'])
def test_a_deployable_is_programmed_by_either_path(admin, conductor, path, op):
    conductor.items['deployables'] = [deployable(1)]
    answer = admin.patch(f'/v2/deployables/{uuid(1)}/{path}', program(op=op))
    assert answer.status_int == 200
    shown = conforms(answer, 'Deployable')
    assert (shown['uuid'], shown['bitstream_id']) == (uuid(1), uuid(9))
    assert 'program_image' not in shown
    assert conductor.calls[0] == ('program_deployable', {'uuid': uuid(1), 'image_uuid': uuid(9)})


@pytest.mark.parametrize(
    'body',
    [
        [],
        {},
        None,
        'x',
        program()[0],
        program() * 2,
        [{}],
        [None],
        program(op='remove'),
        program(path='/name'),
        program(path='/uuid'),
        program(image=None),
        program(image='x'),
        program(image=''),
        program(image=f'{uuid(9)}\n'),
        [program()[0] | {'value': []}],
        [program()[0] | {'value': program()[0]['value'] * 2}],
        [program()[0] | {'value': uuid(9)}],
        [program()[0] | {'value': [{}]}],
        [{'op': 'add', 'path': '/program'}],
    ],
)
def test_what_does_not_name_one_image_is_refused(admin, conductor, body):
    conductor.items['deployables'] = [deployable(1)]
    answer = admin.patch(f'/v2/deployables/{uuid(1)}/program', json.dumps(body).encode())
    assert answer.status_int == 400
    assert fault(answer).startswith('The body') and 'expected' not in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize(
    ('path', 'status'),
    [
        (f'{uuid(1)}/program/{uuid(2)}', 400),
        ('x/program', 400),
        ('x/program/x', 400),
        (f'{uuid(2)}/program', 404),
        (f'{uuid(2)}/program/{uuid(2)}', 404),
        (f'{uuid(1)}', 405),
        (f'{uuid(1)}/programme', 404),
    ],
)
def test_one_must_say_which_deployable(admin, conductor, path, status):
    conductor.items['deployables'] = [deployable(1)]
    answer = admin.patch(f'/v2/deployables/{path}', program())
    assert answer.status_int == status
    assert fault(answer)


def test_an_image_may_be_written_in_capitals(admin, conductor):
    image = 'abcdef00-0000-4000-8000-000000000009'
    conductor.items['deployables'] = [deployable(1)]
    answer = admin.patch(f'/v2/deployables/{uuid(1)}/program', program(image.upper()))
    assert answer.status_int == 200
    assert conductor.calls[0][1]['image_uuid'] == image
