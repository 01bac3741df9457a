# SPDX-License-Identifier: Apache-2.0
"""Tokens are Keystone's business; what we add is which paths need none."""

import threading
from wsgiref import simple_server

import pytest
import webob
import webob.dec
from oslo_config import cfg

from cyborg import errors
from cyborg.api.middleware import auth_token, faults
from tests.unit.api.conftest import fault

ROLES = {
    'member-token': ['member', 'reader'],
    'nova-token': ['service'],
    'person-token': ['admin', 'reader'],
    'cyborg-token': ['service'],
}


class Keystone:
    """As much of Keystone as a service asks of it."""

    def __init__(self, url):
        self.url, self.is_away = url, False

    @webob.dec.wsgify
    def __call__(self, request):
        if self.is_away:
            return webob.Response(status=503)
        if request.path in ('/', '/v3', '/v3/'):
            return self._versions(request)
        if request.method == 'POST':  # we log in
            return self._token('cyborg-token', 201)
        token = request.headers['X-Subject-Token']
        return self._token(token, 200) if token in ROLES else webob.Response(status=404)

    def _versions(self, request):
        version = {
            'id': 'v3.14',
            'status': 'stable',
            'links': [{'rel': 'self', 'href': f'{self.url}/v3/'}],
        }
        return webob.Response(
            json_body={'versions': {'values': [version]}}
            if request.path == '/'
            else {'version': version}
        )

    def _token(self, token, status):
        domain = {'id': 'default', 'name': 'Default'}
        endpoint = {'id': 'e', 'interface': 'internal', 'region': 'r', 'url': self.url}
        body = {
            'token': {
                'methods': ['password'],
                'expires_at': '2999-01-01T00:00:00.000000Z',
                'issued_at': '2026-01-01T00:00:00.000000Z',
                'user': {'id': f'user of {token}', 'name': token, 'domain': domain},
                'project': {'id': f'project of {token}', 'name': 'p', 'domain': domain},
                'roles': [{'id': role, 'name': role} for role in ROLES[token]],
                'catalog': [
                    {'type': 'identity', 'name': 'keystone', 'id': 'k', 'endpoints': [endpoint]}
                ],
            }
        }
        return webob.Response(json_body=body, status=status, headers={'X-Subject-Token': token})


class Quiet(simple_server.WSGIRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def keystone():
    server = simple_server.make_server('127.0.0.1', 0, None, handler_class=Quiet)
    keystone = Keystone(f'http://127.0.0.1:{server.server_port}')
    server.set_app(keystone)
    thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01})
    thread.start()
    yield keystone
    server.shutdown()
    thread.join()
    server.server_close()


@webob.dec.wsgify
def api(request):
    """Says who it thinks is asking."""
    return webob.Response(
        json_body={
            name: request.headers.get(f'X-{name}')
            for name in ('User-Id', 'Project-Id', 'Roles', 'Service-Roles')
        }
    )


@pytest.fixture
def app(keystone):
    conf = cfg.ConfigOpts()
    auth_token.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    local = {
        'oslo_config_config': conf,
        'auth_type': 'password',
        'auth_url': keystone.url,
        'username': 'cyborg',
        'password': 'x',
        'project_name': 'service',
        'user_domain_id': 'default',
        'project_domain_id': 'default',
        'www_authenticate_uri': keystone.url,
        'acl_public_routes': '/, /v2',
    }
    wrap = auth_token.AuthTokenMiddleware.factory({'here': '/etc/cyborg'}, **local)
    return faults.FaultsMiddleware(wrap(api))


def ask(app, path='/v2/devices', **headers):
    request = webob.Request.blank(
        path, headers={name.replace('_', '-'): value for name, value in headers.items()}
    )
    return request.get_response(app)


def test_a_token_says_who_asks(app):
    answer = ask(app, X_Auth_Token='member-token')
    assert answer.json == {
        'User-Id': 'user of member-token',
        'Project-Id': 'project of member-token',
        'Roles': 'member,reader',
        'Service-Roles': None,
    }


@pytest.mark.parametrize(
    'headers', [{}, {'X_Auth_Token': 'forged'}, {'X_Roles': 'admin', 'X_User_Id': 'me'}]
)
def test_without_a_valid_token_there_is_no_answer(app, keystone, headers):
    answer = ask(app, **headers)
    assert answer.status_int == 401
    assert fault(answer) == 'A valid token is needed.'
    assert keystone.url in answer.headers['WWW-Authenticate']


def test_nobody_can_say_themselves_who_they_are(app):
    answer = ask(app, X_Auth_Token='member-token', X_Roles='admin', X_Service_Roles='service')
    assert (answer.json['Roles'], answer.json['Service-Roles']) == ('member,reader', None)


def test_a_service_vouches_with_a_token_of_its_own(app):
    answer = ask(app, X_Auth_Token='member-token', X_Service_Token='nova-token')
    assert (answer.json['Roles'], answer.json['Service-Roles']) == ('member,reader', 'service')


def test_a_person_cannot_vouch(app):
    answer = ask(app, X_Auth_Token='person-token', X_Service_Token='person-token')
    assert answer.status_int == 401


@pytest.mark.parametrize('path', ['/', '/v2', '/v2/', '/v2.json', '/.json', ''])
def test_discovery_needs_no_token_and_believes_nobody(app, path):
    answer = ask(app, path, X_Roles='admin', X_User_Id='me', X_Service_Roles='service')
    assert (answer.status_int, set(answer.json.values())) == (200, {None})


@pytest.mark.parametrize(
    'path', ['/v2/devices', '/v2/devices.json', '/v20', '/v2x', '/x/v2', '/v2/%2e%2e', '/v2/%ff']
)
def test_no_other_path_is_public(app, path):
    assert ask(app, path).status_int == 401


def test_a_keystone_that_is_away_is_said_to_be_so(app, keystone):
    keystone.is_away = True
    answer = ask(app, X_Auth_Token='member-token')
    assert answer.status_int == 503
    assert 'try again later' in fault(answer)


def test_a_service_token_must_be_a_services_unless_the_operator_says_otherwise():
    conf = cfg.ConfigOpts()
    auth_token.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    assert conf.keystone_authtoken.service_token_roles_required is True
    assert conf.keystone_authtoken.service_token_roles == ['service']


@pytest.mark.parametrize('option', ['cafile', 'certfile', 'keyfile'])
def test_a_file_that_is_not_there_is_named_at_the_start(option):
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    local = {'oslo_config_config': conf, 'auth_type': 'none', option: '/none'}
    wrap = auth_token.AuthTokenMiddleware.factory({}, **local)
    with pytest.raises(errors.ConfigError) as raised:
        wrap(None)
    assert raised.value.faultstring == f'[keystone_authtoken] {option} = /none cannot be read.'
