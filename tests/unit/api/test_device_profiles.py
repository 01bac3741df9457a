# SPDX-License-Identifier: Apache-2.0
"""Device profiles over HTTP."""

import pytest

from cyborg import errors
from cyborg.api import app
from tests.unit.api.conftest import Client, conforms, fault, profile, uuid

URL = '/v2/device_profiles'
GZIP = {
    'name': 'gzip',
    'description': None,
    'groups': [{'resources:FPGA': '1', 'trait:CUSTOM_FPGA_INTEL': 'required'}],
}


def test_one_profile_is_answered_bare(admin, conductor):
    answer = admin.post(URL, [GZIP])
    assert answer.status_int == 201
    conforms(answer, 'DeviceProfile')
    assert answer.json == GZIP | {
        'uuid': uuid(0),
        'created_at': '2026-03-01T10:00:00+00:00',
        'updated_at': None,
        'links': [{'rel': 'self', 'href': f'http://localhost{URL}/{uuid(0)}'}],
    }


def test_several_profiles_are_answered_as_a_list(admin, conductor):
    answer = admin.post(URL, [GZIP, GZIP | {'name': 'bzip'}])
    assert answer.status_int == 201
    assert [shown['name'] for shown in answer.json['device_profiles']] == ['gzip', 'bzip']
    assert len(conductor.calls) == 1


def test_one_bad_profile_among_several_creates_none(admin, conductor):
    assert admin.post(URL, [GZIP, GZIP | {'name': ''}]).status_int == 422
    assert not conductor.calls


def test_a_profile_keeps_the_uuid_that_the_client_chose(admin, conductor):
    answer = admin.post(URL, [GZIP | {'uuid': 'ABCDEF00-0000-4000-8000-000000000000'}])
    assert answer.json['uuid'] == 'abcdef00-0000-4000-8000-000000000000'


@pytest.mark.parametrize('version', [None, '2.3'])
def test_keys_that_nobody_knows_are_ignored_up_to_2_3(admin, version):
    body = [GZIP | {'links': [], 'created_at': None}]
    assert admin.post(URL, body, version=version).status_int == 201


@pytest.mark.parametrize('version', ['2.4', '2.5', 'latest'])
def test_keys_that_nobody_knows_are_refused_since_2_4(admin, conductor, version):
    answer = admin.post(URL, [GZIP, GZIP | {'colour': 'red'}], version=version)
    assert answer.status_int == 400
    assert fault(answer) == 'The body: 1/colour is not known.'
    assert not conductor.calls


@pytest.mark.parametrize(
    'body',
    [
        {},
        [],
        GZIP,
        'gzip',
        5,
        b'null',
        ['gzip'],
        [{}],
        [{'name': 'x'}],
        [{'groups': []}],
        [GZIP | {'name': 5}],
        [GZIP | {'name': None}],
        [GZIP | {'groups': {}}],
        [GZIP | {'groups': ['resources:FPGA=1']}],
        [GZIP | {'groups': [{'resources:FPGA': None}]}],
        [GZIP | {'groups': [{'resources:FPGA': 1.5}]}],
        [GZIP | {'groups': [{'resources:FPGA': []}]}],
        [GZIP | {'groups': [{'resources:FPGA': True}]}],
        [GZIP | {'description': 5}],
        [GZIP | {'uuid': 'mine'}],
        [GZIP | {'uuid': 5}],
    ],
)
def test_what_has_the_wrong_shape_is_malformed(admin, conductor, body):
    answer = admin.post(URL, body)
    assert answer.status_int == 400
    assert fault(answer).startswith('The body')
    assert not conductor.calls


@pytest.mark.parametrize(
    'change, word',
    [
        ({'name': ''}, 'name'),
        ({'name': 'x' * 256}, '255'),
        ({'name': 'a b'}, 'letters'),
        ({'name': 'gzip\n'}, 'letters'),
        ({'name': 'gzíp'}, 'letters'),
        ({'description': 'x' * 65536}, 'description'),
        ({'groups': []}, 'at least one group'),
        ({'groups': [{}]}, 'group 0'),
        ({'groups': [{'resources:FPGA': 0}]}, 'at least 1'),
        ({'groups': [{'resources:FPGA': '1', 'group_policy': 'none'}]}, 'flavor'),
    ],
)
def test_what_is_well_formed_but_makes_no_sense_is_unprocessable(admin, conductor, change, word):
    answer = admin.post(URL, [GZIP | change])
    assert answer.status_int == 422
    assert word in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize(
    'change',
    [
        {'name': 'x' * 255},
        {'name': 'A_b-9'},
        {'description': 'Ünïcode, "quotes" and 100 % more'},
        {'groups': [{'resources:FPGA': 1}]},
    ],
)
def test_what_makes_sense_is_taken(admin, change):
    assert admin.post(URL, [GZIP | change]).status_int == 201


def test_the_operators_extra_keys_are_known(conf, conductor):
    conf.set_override('extra_accel_keys', ['video_ram'], 'api')
    client = Client(app.make_app(conf, conductor))
    group = {'resources:PGPU': '1', 'accel:video_ram': '2GB'}
    assert client.post(URL, [GZIP | {'groups': [group]}]).status_int == 201


def test_a_taken_name_is_a_conflict(admin, conductor):
    conductor.error = errors.DuplicateProfile(field='name', value='gzip')
    answer = admin.post(URL, [GZIP])
    assert answer.status_int == 409
    assert 'gzip' in fault(answer)


def test_a_list_may_be_of_some_names(admin, conductor):
    conductor.items['device_profiles'] = [profile(1), profile(2), profile(3)]
    answer = admin.get(f'{URL}?name=profile3,%20profile1%20,unknown,no%20name')
    assert [shown['name'] for shown in answer.json['device_profiles']] == ['profile1', 'profile3']


@pytest.mark.parametrize('names', ['', ',', '!,*'])
def test_no_name_means_no_profile_rather_than_all(admin, conductor, names):
    conductor.items['device_profiles'] = [profile(1)]
    answer = admin.get(f'{URL}?name={names}')
    assert (answer.status_int, answer.json) == (200, {'device_profiles': []})


def test_one_profile_is_shown_in_a_wrapper(admin, conductor):
    conductor.items['device_profiles'] = [profile(1)]
    answer = admin.get(f'{URL}/{uuid(1)}')
    conforms(answer, 'DeviceProfile', 'device_profile')
    assert list(answer.json) == ['device_profile']


@pytest.mark.parametrize('version, status', [(None, 406), ('2.1', 406), ('2.2', 200)])
def test_a_profile_has_a_path_by_name_since_2_2(admin, conductor, version, status):
    conductor.items['device_profiles'] = [profile(1)]
    assert admin.get(f'{URL}/profile1', version=version).status_int == status


@pytest.mark.parametrize('name', ['no%20name', 'a.b', '%00', 'x' * 256, 'a%2Cb'])
def test_a_name_that_cannot_be_is_not_found(admin, conductor, name):
    answer = admin.get(f'{URL}/{name}', version='2.2')
    assert answer.status_int == 404
    assert not conductor.calls


@pytest.mark.parametrize(
    'url, refs',
    [
        (f'{URL}/gzip', ['gzip']),
        (f'{URL}/gzip,bzip', ['gzip', 'bzip']),
        (f'{URL}/{uuid(1)}', [uuid(1)]),
        (f'{URL}?value=gzip,bzip,gzip', ['gzip', 'bzip']),
        (f'{URL}/?name=gzip', ['gzip']),
        (
            f'{URL}?value=ABCDEF00-0000-4000-8000-000000000000',
            ['abcdef00-0000-4000-8000-000000000000'],
        ),
    ],
)
def test_profiles_are_deleted_in_one_call(admin, conductor, url, refs):
    answer = admin.delete(url)
    assert (answer.status_int, answer.body) == (204, b'')
    assert conductor.calls == [('delete_device_profiles', {'refs': refs})]


@pytest.mark.parametrize('query', ['', '?value=', '?name=,', '?value=a&name=b', '?uuid=x'])
def test_a_deletion_says_what_to_delete(admin, conductor, query):
    assert admin.delete(f'{URL}{query}').status_int == 400
    assert admin.delete(f'{URL}/{query}').status_int == 400
    assert not conductor.calls


@pytest.mark.parametrize(
    'error, status',
    [(errors.ProfileNotFound(names='gzip'), 404), (errors.ProfileInUse(names='gzip'), 409)],
)
def test_what_cannot_be_deleted_is_said(admin, conductor, error, status):
    conductor.error = error
    answer = admin.delete(f'{URL}/gzip')
    assert answer.status_int == status
    assert 'gzip' in fault(answer)


@pytest.mark.parametrize(
    'text', ['ABCDEF00-0000-4000-8000-00000000000\n', 'abcdef00-0000-4000-8000-000000000000\n']
)
def test_a_uuid_ends_where_it_ends(admin, conductor, text):
    assert admin.post(URL, [GZIP | {'uuid': text}]).status_int == 400
    assert not conductor.calls


# -- since 2.5 -------------------------------------------------------------------------------


@pytest.mark.parametrize('version, shows', [('2.4', False), ('2.5', True)])
def test_a_profile_shows_its_state_and_whom_it_is_for_since_2_5(admin, conductor, version, shows):
    conductor.items['device_profiles'] = [profile(1, is_enabled=False, project_ids=['p'])]
    answer = admin.get(URL, version=version)
    [shown] = conforms(answer, 'DeviceProfile', 'device_profiles')
    assert [shown.get(name) for name in ('enabled', 'projects')] == (
        [False, ['p']] if shows else [None, None]
    )


@pytest.mark.parametrize('version', [None, '2.3', '2.4'])
@pytest.mark.parametrize(
    'name, value', [('enabled', False), ('enabled', True), ('projects', ['p']), ('projects', None)]
)
def test_a_profile_cannot_begin_disabled_or_private_before_2_5(
    admin, conductor, version, name, value
):
    answer = admin.post(URL, [GZIP | {name: value}], version=version)
    assert answer.status_int == 400
    assert fault(answer) == f'The body: 0/{name} needs version 2.5 of this API or later.'
    assert not conductor.calls


def test_a_profile_can_begin_disabled_and_private(admin, conductor):
    answer = admin.post(URL, [GZIP | {'enabled': False, 'projects': ['p', 'q']}], version='2.5')
    assert answer.status_int == 201
    conforms(answer, 'DeviceProfile')
    [(_, arguments)] = conductor.calls
    [wanted] = arguments['profiles']
    assert (wanted.is_enabled, wanted.project_ids) == (False, ['p', 'q'])


@pytest.mark.parametrize(
    'body, changes',
    [
        ({'name': 'zip'}, {'name': 'zip'}),
        ({'description': None}, {'description': None}),
        ({'groups': [{'resources:fpga': 2}]}, {'groups': [{'resources:FPGA': '2'}]}),
        ({'enabled': False}, {'is_enabled': False}),
        ({'projects': []}, {'project_ids': []}),
        ({'projects': None, 'enabled': True}, {'project_ids': None, 'is_enabled': True}),
    ],
)
@pytest.mark.parametrize('ref', ['profile1', uuid(1)])
def test_a_profile_is_changed_in_what_the_body_names(admin, conductor, ref, body, changes):
    conductor.items['device_profiles'] = [profile(1)]
    answer = admin.patch(f'{URL}/{ref}', body, version='2.5')
    assert answer.status_int == 200
    conforms(answer, 'DeviceProfile', 'device_profile')
    assert conductor.calls[0] == ('update_device_profile', {'ref': ref, 'changes': changes})


@pytest.mark.parametrize(
    'body, word',
    [
        ({}, 'empty'),
        ([], 'an object'),
        ({'uuid': uuid(1)}, 'uuid'),
        ({'enabled': 'no'}, 'true'),
        ({'projects': 'p'}, 'a list'),
        ({'projects': ['p', 'p']}, 'projects'),
        ({'projects': ['p', 'p ']}, 'without blanks'),
        ({'projects': ['']}, 'empty'),
        ({'projects': ['x' * 256]}, '255'),
        ({'name': None}, 'name'),
        ({'groups': None}, 'groups'),
        ({'colour': 'red', 'name': 'x'}, 'colour'),
    ],
)
def test_a_change_of_the_wrong_shape_is_malformed(admin, conductor, body, word):
    answer = admin.patch(f'{URL}/gzip', body, version='2.5')
    assert answer.status_int == 400
    assert word in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize(
    'body',
    [
        {'name': ''},
        {'name': 'a b'},
        {'groups': []},
        {'groups': [{'trait:CUSTOM_A': 'required'}]},
        {'description': 'x' * 65536},
    ],
)
def test_a_change_that_makes_no_sense_is_unprocessable(admin, conductor, body):
    answer = admin.patch(f'{URL}/gzip', body, version='2.5')
    assert answer.status_int == 422
    assert 'gzip' in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize('version', ['2.0', '2.4'])
def test_profiles_cannot_be_changed_before_2_5(admin, conductor, version):
    answer = admin.patch(f'{URL}/gzip', {'name': 'zip'}, version=version)
    assert answer.status_int == 405
    assert 'PATCH' not in answer.allow
    assert '2.5' in fault(answer)
    assert not conductor.calls


def test_profiles_are_listed_by_their_state_since_2_5(admin, conductor):
    admin.get(f'{URL}?enabled=true', version='2.5')
    [(_, arguments)] = conductor.calls
    assert arguments['filters'] == {'is_enabled': True}
    assert admin.get(f'{URL}?enabled=true', version='2.4').status_int == 400


def test_a_disabled_profile_is_a_conflict(nova, conductor):
    conductor.error = errors.ProfileDisabled(name='gzip')
    answer = nova.post('/v2/accelerator_requests', {'device_profile_name': 'gzip'})
    assert answer.status_int == 409
    assert 'disabled' in fault(answer)
