# SPDX-License-Identifier: Apache-2.0
"""Every error is answered with one sentence, without internal details."""

import io
import json
import logging

import oslo_messaging as messaging
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oslo_messaging._drivers import common

from cyborg import errors
from tests.unit.api.conftest import Client, fault, uuid

DEVICE = f'/v2/devices/{uuid(1)}'


@pytest.mark.parametrize(
    'error, status',
    [
        (errors.DeviceNotFound(uuid='x'), 404),
        (errors.BadRequest('No.'), 400),
        (errors.Conflict(), 409),
        (errors.ServiceTokenRequired(action='Deleting'), 403),
        (errors.Unavailable('The database is away.'), 503),
    ],
)
def test_an_error_of_ours_keeps_its_status_and_sentence(admin, conductor, error, status):
    conductor.error = error
    answer = admin.get(DEVICE)
    assert answer.status_int == status
    assert fault(answer) == error.faultstring


def test_an_error_that_came_by_message_shows_no_traceback(admin, conductor):
    try:
        raise errors.NoFreeHandle(rp='r', host='h', uuid='u')
    except errors.NoFreeHandle as error:
        sent = common.serialize_remote_exception((type(error), error, error.__traceback__))
    conductor.error = common.deserialize_remote_exception(sent, [errors.__name__])
    answer = admin.get(DEVICE)
    assert answer.status_int == 409
    assert fault(answer) == errors.NoFreeHandle(rp='r', host='h', uuid='u').faultstring


@pytest.mark.parametrize(
    'error',
    [
        messaging.MessagingTimeout('Timed out waiting for reply 123'),
        messaging.MessageDeliveryFailure('amqp://cyborg:secret@broker'),
    ],
)
def test_a_conductor_that_is_away_is_said_to_be_so(admin, conductor, error):
    conductor.error = error
    answer = admin.get(DEVICE)
    assert answer.status_int == 503
    assert fault(answer) == 'The conductor does not answer; try again later.'
    assert answer.headers['Retry-After'] == '5'


@pytest.mark.parametrize(
    'error',
    [
        KeyError('secret'),
        messaging.RemoteError('OperationalError', 'SELECT secret', ['File "secret.py"']),
    ],
)
def test_what_nobody_foresaw_is_logged_and_not_told(admin, conductor, error, caplog):
    conductor.error = error
    with caplog.at_level(logging.ERROR):
        answer = admin.get(DEVICE)
    assert answer.status_int == 500
    assert 'secret' not in answer.text
    assert fault(answer) == 'Cyborg failed unexpectedly.'
    assert 'secret' in caplog.text


@pytest.mark.parametrize(
    'kind',
    ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data', 'application/xml'],
)
def test_a_body_that_is_not_json_by_type_is_refused(admin, conductor, kind):
    answer = admin.post(
        '/v2/accelerator_requests', b'device_profile_name=x', headers={'Content-Type': kind}
    )
    assert answer.status_int == 415
    assert kind in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize(
    'kind',
    [
        'application/json',
        'application/json; charset=utf-8',
        'application/json-patch+json',
        '',
        'Application/JSON',
    ],
)
def test_json_is_json_however_it_is_called(admin, conductor, kind):
    conductor.items['arqs'] = []
    answer = admin.post(
        '/v2/accelerator_requests', {'device_profile_name': 'x'}, headers={'Content-Type': kind}
    )
    assert answer.status_int == 201


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'{',
        b'nonsense',
        b'\xff\xfe',
        b'{"a": NaN}',
        b'[' * 100000,
        b'1' * 5000,
        b'{"device_profile_name": "a", "device_profile_name": "b"}',
    ],
)
def test_a_body_that_is_no_json_is_the_clients_mistake(admin, conductor, body):
    answer = admin.post('/v2/accelerator_requests', body)
    assert answer.status_int == 400
    assert fault(answer) and 'sys.' not in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize('name', ['\0', '\ud800'])
def test_text_that_no_database_stores_is_refused(admin, conductor, name):
    answer = admin.post('/v2/accelerator_requests', {'device_profile_name': name})
    assert answer.status_int == 400
    assert not conductor.calls


def test_the_same_holds_for_queries(admin, conductor):
    assert admin.get('/v2/devices?hostname=%00').status_int == 400
    assert not conductor.calls


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    'name',
                    'groups',
                    'uuid',
                    'description',
                    'resources:FPGA',
                    'trait:X',
                    'accel:function_id',
                    'device_profile_name',
                    'attribute',
                    'key',
                    'value',
                    'deployable_id',
                    'op',
                    'path',
                    uuid(1),
                ]
            )
            | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    body=JSON,
    operation=st.sampled_from(
        [
            ('POST', '/v2/device_profiles'),
            ('POST', '/v2/accelerator_requests'),
            ('PATCH', '/v2/accelerator_requests'),
            ('POST', '/v2/attributes'),
        ]
    ),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_body_whatever_is_answered_with_a_server_error(application, body, operation):
    client = Client(application, service=True)
    answer = client(*operation, body=json.dumps(body).encode())
    assert answer.status_int < 500
    if answer.status_int >= 400:
        assert fault(answer)


@pytest.mark.parametrize(
    'path',
    [
        '/v2',
        '/v2/devices',
        '/v2/deployables',
        '/v2/attributes',
        '/v2/device_profiles',
        '/v2/accelerator_requests',
        DEVICE,
    ],
)
def test_an_unknown_query_parameter_is_named(admin, conductor, path):
    answer = admin.get(f'{path}?colour=red&flavour=sweet')
    assert answer.status_int == 400
    assert 'colour, flavour' in fault(answer)
    assert not conductor.calls


def test_a_parameter_given_twice_is_refused(admin):
    answer = admin.get('/v2/devices?type=GPU&type=FPGA')
    assert answer.status_int == 400
    assert 'type is given twice' in fault(answer)


def test_a_body_that_ends_too_early_is_malformed(admin, conductor):
    answer = admin(
        'POST',
        '/v2/device_profiles',
        CONTENT_LENGTH='100',
        **{'wsgi.input': io.BytesIO(b'[]'), 'CONTENT_TYPE': 'application/json'},
    )
    assert answer.status_int == 400
    assert 'Content-Length' in fault(answer)
    assert not conductor.calls


@pytest.mark.parametrize('depth', [500, 900, 960, 990, 2000, 100000])
def test_a_body_that_is_nested_too_deeply_is_malformed(admin, conductor, depth):
    for opening, closing in ((b'[', b']'), (b'{"a":', b'}')):
        answer = admin.post('/v2/device_profiles', opening * depth + b'1' + closing * depth)
        assert answer.status_int == 400
    assert not conductor.calls
