# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests over HTTP."""

import jsonschema
import pytest

from cyborg import errors
from cyborg.api import app
from cyborg.api.types import arqs
from tests.unit.api.conftest import Client, arq, fault, uuid

URL = '/v2/accelerator_requests'
INSTANCE, PROVIDER = uuid(101), uuid(102)


def operations(op='add', **change):
    values = {
        'hostname': 'node-7.example',
        'device_rp_uuid': PROVIDER,
        'instance_uuid': INSTANCE,
    } | change
    return [
        {'op': op, 'path': f'/{name}'} | ({'value': value} if op == 'add' else {})
        for name, value in values.items()
        if value != ''
    ]


@pytest.fixture
def member(application):
    return Client(application, roles=['member', 'reader'])


# -- create and read -------------------------------------------------------------------------


def test_creating_answers_all_requests(nova, conductor):
    conductor.items['arqs'] = [arq(1), arq(2)]
    answer = nova.post(
        URL, {'device_profile_name': 'gzip', 'device_profile_group_id': None, 'image_uuid': None}
    )
    assert answer.status_int == 201
    assert conductor.calls == [('create_arqs', {'profile_name': 'gzip'})]
    for shown in answer.json['arqs']:
        jsonschema.validate(shown, arqs.AcceleratorRequest.described())


def test_an_unbound_request_shows_what_it_does_not_have_yet(nova, conductor):
    conductor.items['arqs'] = [arq(1)]
    assert nova.get(f'{URL}/{uuid(1)}').json == {
        'uuid': uuid(1),
        'state': 'Initial',
        'device_profile_name': 'gzip',
        'device_profile_group_id': 0,
        'hostname': None,
        'device_rp_uuid': None,
        'instance_uuid': None,
        'project_id': 'mine',
        'attach_handle_type': '',
        'attach_handle_uuid': None,
        'attach_handle_info': {},
        'created_at': '2026-03-01T10:00:00+00:00',
        'updated_at': None,
        'links': [{'rel': 'self', 'href': f'http://localhost{URL}/{uuid(1)}'}],
    }


def test_a_bound_request_shows_its_handle_at_every_version(nova, conductor):
    info = {'domain': '0000', 'bus': '0c', 'device': '00', 'function': '1'}
    conductor.items['arqs'] = [
        arq(
            1,
            'Bound',
            attach_handle_type='PCI',
            attach_handle_uuid=uuid(5),
            attach_handle_info=info,
        )
    ]
    shown = nova.get(f'{URL}/{uuid(1)}').json
    assert (shown['attach_handle_type'], shown['attach_handle_uuid']) == ('PCI', uuid(5))
    assert shown['attach_handle_info'] == info


@pytest.mark.parametrize('name', ['', '!@#$%^&*()=-[]', 'a b', 'x' * 256])
def test_a_profile_that_cannot_be_is_not_found(nova, conductor, name):
    answer = nova.post(URL, {'device_profile_name': name})
    assert answer.status_int == 404
    assert not conductor.calls


@pytest.mark.parametrize(
    'body', [{}, [], {'device_profile_name': 5}, {'device_profile_name': None}]
)
def test_a_request_names_its_profile(nova, body):
    assert nova.post(URL, body).status_int == 400


def test_the_requests_of_one_server_can_be_listed(nova, conductor):
    conductor.items['arqs'] = [arq(1, instance_uuid=INSTANCE), arq(2)]
    answer = nova.get(f'{URL}?instance={INSTANCE.upper()}')
    assert [shown['uuid'] for shown in answer.json['arqs']] == [uuid(1)]


def test_resolved_requests_can_be_listed(nova, conductor):
    conductor.items['arqs'] = [
        arq(1, 'Initial'),
        arq(2, 'Bound'),
        arq(3, 'BindFailed'),
        arq(4, 'Deleting'),
        arq(5, 'BindStarted'),
        arq(6, 'Unknown'),
    ]
    answer = nova.get(f'{URL}?bind_state=resolved')
    assert [shown['uuid'] for shown in answer.json['arqs']] == [uuid(2), uuid(3), uuid(4)]


def test_a_server_is_resolved_when_all_its_requests_are(nova, conductor):
    url = f'{URL}?instance={INSTANCE}&bind_state=resolved'
    conductor.items['arqs'] = [
        arq(1, 'Bound', instance_uuid=INSTANCE),
        arq(2, 'BindStarted', instance_uuid=INSTANCE),
    ]
    answer = nova.get(url)
    assert answer.status_int == 423
    assert uuid(2) in fault(answer)
    # a filter or a page does not hide it
    for more in ('limit=1', 'state=Bound'):
        assert nova.get(f'{url}&{more}').status_int == 423
    conductor.items['arqs'][1].state = 'BindFailed'
    assert [each['uuid'] for each in nova.get(f'{url}&state=Bound').json['arqs']] == [uuid(1)]
    assert [each['uuid'] for each in nova.get(f'{url}&limit=1').json['arqs']] == [uuid(1)]
    answer = nova.get(url)
    assert answer.status_int == 200
    assert len(answer.json['arqs']) == 2


@pytest.mark.parametrize('query', ['instance=mine', 'instance=', 'bind_state=open', 'bind_state='])
def test_a_filter_that_makes_no_sense_is_refused(nova, conductor, query):
    assert nova.get(f'{URL}?{query}').status_int == 400
    assert not conductor.calls


@pytest.mark.parametrize('method', ['GET', 'DELETE'])
def test_a_malformed_uuid_is_refused_and_an_unknown_one_not_found(nova, conductor, method):
    assert nova(method, f'{URL}/mine').status_int == 400
    assert not conductor.calls
    conductor.error = errors.ArqNotFound(uuids=uuid(1))
    assert nova(method, f'{URL}/{uuid(1)}').status_int == 404


# -- bind and unbind -------------------------------------------------------------------------


@pytest.mark.parametrize('url', [URL, f'{URL}/{uuid(1)}', f'{URL}/{uuid(1).upper()}'])
def test_a_map_binds_all_it_names_in_one_call(nova, conductor, url):
    conductor.items['arqs'] = [arq(1, 'Bound'), arq(2, 'Bound')]
    answer = nova.patch(
        url, {uuid(1): operations(), uuid(2): list(reversed(operations(hostname='n8')))}
    )
    assert (answer.status_int, answer.body) == (202, b'')
    assert 'Content-Type' not in answer.headers
    [(method, arguments)] = conductor.calls
    assert method == 'bind_arqs'
    assert [
        (b.arq_uuid, b.hostname, b.device_rp_uuid, b.instance_uuid, b.project_id)
        for b in arguments['bindings']
    ] == [
        (uuid(1), 'node-7.example', PROVIDER, INSTANCE, None),
        (uuid(2), 'n8', PROVIDER, INSTANCE, None),
    ]


@pytest.mark.parametrize(
    'ops',
    [
        operations('remove'),
        [{'op': 'remove', 'path': '/hostname'}],
        [{'op': 'remove', 'path': '/instance_uuid', 'value': 'ignored'}],
    ],
)
def test_removing_any_of_the_paths_unbinds(nova, conductor, ops):
    answer = nova.patch(URL, {uuid(1): ops, uuid(2): ops})
    assert (answer.status_int, answer.body) == (202, b'')
    assert conductor.calls == [('unbind_arqs', {'uuids': [uuid(1), uuid(2)]})]


@pytest.mark.parametrize(
    'body, word',
    [
        ({}, 'empty'),
        ([], 'an object'),
        ({uuid(1): []}, 'empty'),
        ({uuid(1): {}}, 'a list'),
        ({uuid(1): ['add']}, 'an object'),
        ({uuid(1): [{'op': 'add'}]}, 'path'),
        ({uuid(1): [{'path': '/hostname'}]}, 'op'),
        ({'mine': operations()}, 'UUID'),
        ({uuid(1): [{'op': 'replace', 'path': '/hostname', 'value': 'x'}]}, 'add, remove'),
        ({uuid(1): operations() + operations('remove')}, 'all remove'),
        ({uuid(1): operations(), uuid(2): operations('remove')}, 'cannot both bind and unbind'),
        ({uuid(1): [*operations(), *operations()]}, 'twice'),
        (
            {
                'ABCDEF00-0000-4000-8000-000000000000': operations(),
                'abcdef00-0000-4000-8000-000000000000': operations(),
            },
            'twice',
        ),
        ({uuid(1): operations(state='Bound')}, '/state'),
        ({uuid(1): operations(hostname='')}, '/hostname'),
        ({uuid(1): operations(hostname='', instance_uuid='')}, '/hostname, /instance_uuid'),
        ({uuid(1): operations(hostname=None)}, '/hostname'),
        ({uuid(1): operations(hostname='x' * 256)}, '255'),
        ({uuid(1): operations(hostname=5)}, 'a string'),
        ({uuid(1): operations(device_rp_uuid='rp')}, '/device_rp_uuid'),
        ({uuid(1): operations(device_rp_uuid={})}, '/device_rp_uuid'),
        ({uuid(1): operations(instance_uuid='server')}, '/instance_uuid'),
        ({uuid(1): operations(), uuid(2): operations(instance_uuid=None)}, uuid(2)),
    ],
)
def test_a_map_that_makes_no_sense_changes_nothing(nova, conductor, body, word):
    answer = nova.patch(URL, body)
    assert answer.status_int == 400
    assert word in fault(answer)
    assert not conductor.calls


def test_a_path_that_the_map_does_not_name_is_refused(nova, conductor):
    assert nova.patch(f'{URL}/{uuid(3)}', {uuid(1): operations()}).status_int == 400
    assert not conductor.calls


@pytest.mark.parametrize('roles', [['member'], ['admin', 'member']])
@pytest.mark.parametrize('op', ['add', 'remove'])
def test_only_a_service_binds_and_unbinds(application, conductor, roles, op):
    person = Client(application, roles=roles)
    answer = person.patch(URL, {uuid(1): operations(op)})
    assert answer.status_int == 403
    assert 'requires a service token' in fault(answer).lower()
    assert not conductor.calls


@pytest.mark.parametrize('op', ['add', 'remove'])
def test_a_project_can_be_given_since_2_1_by_administrators(application, conductor, nova, op):
    conductor.items['arqs'] = [arq(1, 'Bound')]
    admin = Client(application, service=True)
    body = {uuid(1): operations(op, project_id='theirs')}
    assert nova.patch(URL, body).status_int == 406
    assert admin.patch(URL, body, version='2.0').status_int == 406
    assert nova.patch(URL, body, version='2.1').status_int == 403
    assert not conductor.calls
    assert admin.patch(URL, body, version='2.1').status_int == 202
    [(_, arguments)] = conductor.calls
    if op == 'add':
        assert arguments['bindings'][0].project_id == 'theirs'


@pytest.mark.parametrize(
    'error, status',
    [
        (errors.ArqNotFound(uuids=uuid(1)), 404),
        (errors.ProviderNotFound(host='h', rp=PROVIDER), 404),
        (errors.NoFreeHandle(rp=PROVIDER, host='h', uuid=uuid(1)), 409),
        (errors.BadArqState(uuid=uuid(1), state='Bound', event='bind'), 409),
    ],
)
def test_a_bind_that_is_refused_says_why(nova, conductor, error, status):
    conductor.error = error
    answer = nova.patch(URL, {uuid(1): operations()})
    assert answer.status_int == status
    assert fault(answer) == error.faultstring


@pytest.mark.parametrize('end, status', [('Bound', 202), ('BindFailed', 409), (None, 404)])
def test_a_bind_is_answered_when_the_host_is_done(nova, conductor, end, status):
    conductor.items['arqs'] = [arq(1, 'BindStarted')]
    listed = conductor.list_arqs

    def list_arqs(*args):
        conductor.items['arqs'] = [arq(1, end, reason='No power.')] if end else []
        return listed(*args)

    conductor.list_arqs = list_arqs
    answer = nova.patch(URL, {uuid(1): operations()})
    assert answer.status_int == status
    if end == 'BindFailed':
        assert 'No power.' in fault(answer)


def test_a_bind_does_not_wait_where_the_operator_does_not_want_it(conf, conductor):
    conf.set_override('max_waiting_binds', 0, 'api')
    conductor.items['arqs'] = [arq(1, 'BindStarted')]
    nova = Client(app.make_app(conf, conductor), service=True)
    assert nova.patch(URL, {uuid(1): operations()}).status_int == 202
    assert [method for method, _ in conductor.calls] == ['bind_arqs']


# -- delete ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'url, uuids',
    [
        (f'{URL}/{uuid(1)}', [uuid(1)]),
        (f'{URL}?arqs={uuid(1)},{uuid(2)}', [uuid(1), uuid(2)]),
        (f'{URL}?arqs={uuid(1)},%20{uuid(1).upper()}', [uuid(1)]),
    ],
)
def test_requests_are_deleted_in_one_call(member, conductor, url, uuids):
    answer = member.delete(url)
    assert (answer.status_int, answer.body) == (204, b'')
    assert conductor.calls == [('delete_arqs', {'uuids': uuids})]


def test_a_service_deletes_the_requests_of_a_server(nova, conductor):
    assert nova.delete(f'{URL}?instance={INSTANCE}').status_int == 204
    assert conductor.calls == [('delete_instance_arqs', {'instance_uuid': INSTANCE})]


def test_only_a_service_deletes_the_requests_of_a_server(admin, conductor):
    answer = admin.delete(f'{URL}?instance={INSTANCE}')
    assert answer.status_int == 403
    assert 'requires a service token' in fault(answer).lower()
    assert not conductor.calls


@pytest.mark.parametrize(
    'query',
    [
        '',
        '?arqs=',
        '?arqs=mine',
        f'?arqs={uuid(1)},',
        '?instance=mine',
        '?uuid=x',
        f'?arqs={uuid(1)}&instance={INSTANCE}',
    ],
)
def test_a_deletion_says_what_to_delete(nova, conductor, query):
    assert nova.delete(f'{URL}{query}').status_int == 400
    assert not conductor.calls


def test_the_conductor_learns_whether_a_service_vouches(nova, member, conductor):
    nova.delete(f'{URL}/{uuid(1)}')
    member.delete(f'{URL}/{uuid(1)}')
    assert [context.is_service for context in conductor.contexts] == [True, False]
