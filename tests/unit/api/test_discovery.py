# SPDX-License-Identifier: Apache-2.0
"""Clients find their way from the documents at the root."""

import pytest

from cyborg.api import app, microversions
from tests.unit.api.conftest import Client, fault

VERSION = {'status': 'CURRENT', 'min_version': '2.0', 'max_version': str(microversions.HIGHEST)}


def test_the_root_lists_the_one_version(admin):
    answer = admin.get('/')
    assert answer.status_int == 200
    [version] = answer.json['versions']
    assert version == answer.json['default_version']
    assert version == VERSION | {
        'id': 'v2',
        'links': [{'rel': 'self', 'href': 'http://localhost/v2'}],
    }


@pytest.mark.parametrize('path', ['/v2', '/v2/', '/v2//', '/v2.json'])
def test_the_version_document_is_bare(admin, path):
    answer = admin.get(path)
    assert answer.json == VERSION | {
        'id': 'v2.0',
        'links': [{'rel': 'self', 'href': 'http://localhost/v2/'}],
    }


def test_links_lead_to_wherever_the_service_is_mounted(admin):
    answer = admin(
        'GET',
        '/v2',
        SCRIPT_NAME='/accelerator',
        HTTP_HOST='cloud.example:8080',
        **{'wsgi.url_scheme': 'https'},
    )
    [link] = answer.json['links']
    assert link['href'] == 'https://cloud.example:8080/accelerator/v2/'


def test_the_operator_may_say_what_links_begin_with(conf, conductor):
    conf.set_override('public_endpoint', 'https://cloud.example/accelerator/', 'api')
    client = Client(app.make_app(conf, conductor))
    [link] = client.get('/v2').json['links']
    assert link['href'] == 'https://cloud.example/accelerator/v2/'


def test_discovery_asks_for_no_role(application):
    anybody = Client(application, roles=[])
    assert anybody.get('/').status_int == anybody.get('/v2/').status_int == 200


@pytest.mark.parametrize(
    'path',
    ['/v2/devices', '/v2/devices/', '/devices', '/devices/', '/v2//devices', '/v2/devices.json'],
)
def test_a_path_without_version_means_version_2(admin, path):
    assert admin.get(path).json == {'devices': []}


@pytest.mark.parametrize(
    'path',
    [
        '/v3',
        '/v1',
        '/v2.1',
        '/v3/devices',
        '/v2/nothing',
        '/nothing',
        '/v2/devices/x/y/z',
        '/v2/v2/devices',
        '/v2/__class__',
        '/v2/devices/x/__init__',
    ],
)
def test_what_is_not_there_is_not_found(admin, path):
    answer = admin.get(path)
    assert answer.status_int == 404
    assert fault(answer) == 'There is nothing at this path.'


@pytest.mark.parametrize(
    'method, path, allowed',
    [
        ('POST', '/', {'GET'}),
        ('DELETE', '/v2', {'GET'}),
        ('PUT', '/v2/device_profiles', {'GET', 'POST', 'DELETE'}),
        ('PATCH', '/v2/device_profiles/x', {'GET', 'DELETE'}),
        ('PATCH', '/v2/deployables/x', {'GET'}),
        ('PATCH', '/v2/attributes/x', {'GET', 'DELETE'}),
        ('GET', '/v2/devices/x/enable', {'POST'}),
        ('OPTIONS', '/v2/devices', {'GET'}),
    ],
)
def test_a_method_that_is_not_offered_is_answered_with_those_that_are(admin, method, path, allowed):
    answer = admin(method, path)
    assert answer.status_int == 405
    assert set(answer.allow) == allowed
    assert method in fault(answer)


def test_head_is_get_without_the_body(admin):
    answer = admin.head('/v2/devices')
    assert (answer.status_int, answer.body) == (200, b'')
    assert answer.content_type == 'application/json'


@pytest.mark.parametrize('accept', ['text/html', 'image/png', 'application/xml;q=0.9'])
def test_the_answer_is_json_whatever_the_client_would_like(admin, accept):
    assert admin.get('/v2', headers={'Accept': accept}).content_type == 'application/json'


@pytest.mark.parametrize('path', ['/v2/%ff', '/v2/devices?type=%ff', '/%ff'])
def test_a_url_that_is_not_utf8_is_the_clients_mistake(admin, path):
    answer = admin.get(path)
    assert answer.status_int == 400
    assert 'UTF-8' in fault(answer)
