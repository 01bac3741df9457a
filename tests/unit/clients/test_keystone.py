# SPDX-License-Identifier: Apache-2.0
"""Making the client of a service from a section of the configuration."""

import json

import pytest
import requests
import webob
from keystoneauth1 import exceptions
from oslo_config import cfg

from cyborg import conf as options
from cyborg import context, errors
from cyborg.clients import keystone, wsgi


@pytest.fixture
def configured(tmp_path):
    """A configuration from the text of its file."""

    def parse(text):
        conf = cfg.ConfigOpts()
        options.register(conf)
        (tmp_path / 'cyborg.conf').write_text(text)
        conf(['--config-file', str(tmp_path / 'cyborg.conf')])
        return conf

    return parse


@pytest.fixture
def echoed():
    """A session whose service answers with the headers it got."""

    def echo(environ, start_response):
        headers = dict(webob.Request(environ).headers)
        return webob.Response(json.dumps(headers), content_type='text/json')(
            environ, start_response
        )

    session = requests.Session()
    wsgi.mount(session, 'http://service.local', echo)
    return session


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('', ['[placement]', 'auth_type']),
        ('[placement]\nauth_type = passwort', ['[placement]', 'passwort']),
        ('[placement]\nauth_type = password', ['[placement]', 'auth_url']),
        ('[placement]\nauth_section = cloud', ['[cloud]', 'auth_type']),
        ('[placement]\nauth_type = none\nvalid_interfaces = inside', ['[placement]', 'inside']),
    ],
)
def test_a_mistake_in_the_configuration_is_one_sentence(configured, text, words):
    with pytest.raises(errors.ConfigError) as caught:
        keystone.connect(configured(text), 'placement')
    assert all(word in str(caught.value) for word in words)
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('section', 'service_type'),
    [('placement', 'placement'), ('nova', 'compute'), ('glance', 'image')],
)
def test_each_section_knows_its_service(configured, section, service_type):
    conf = configured(f'[{section}]\nauth_type = none')
    assert keystone.connect(conf, section).service_type == service_type


def test_options_of_the_section_count(configured):
    conf = configured(
        '[nova]\nauth_type = none\nservice_type = compute_legacy\n'
        'region_name = north\nvalid_interfaces = admin\ntimeout = 7'
    )
    made = keystone.connect(conf, 'nova')
    assert (made.service_type, made.region_name, made.interface) == (
        'compute_legacy',
        'north',
        ['admin'],
    )
    assert made.session.timeout == 7


def test_credentials_may_have_a_section_of_their_own(configured, echoed):
    conf = configured(
        '[nova]\nauth_section = cloud\n[cloud]\nauth_type = admin_token\n'
        'endpoint = http://service.local\ntoken = secret'
    )
    assert keystone.connect(conf, 'nova', echoed).get('/').json()['X-Auth-Token'] == 'secret'


def test_a_service_that_hangs_is_not_waited_for_for_ever(configured):
    made = keystone.connect(configured('[nova]\nauth_type = none'), 'nova')
    assert made.session.timeout == keystone.TIMEOUT


def test_the_request_that_is_worked_for_is_named(configured, echoed):
    made = keystone.connect(
        configured(
            '[nova]\nauth_type = admin_token\nendpoint = http://service.local\ntoken = secret'
        ),
        'nova',
        echoed,
    )
    first, second = (context.RequestContext(overwrite=False) for _ in range(2))
    for current in (first, second):
        current.update_store()
        headers = made.get('/').json()
        assert headers['X-Openstack-Request-Id'] == current.request_id
        assert headers['X-Auth-Token'] == 'secret'
    # one that came from afar keeps its name, and what a caller names counts most
    afar = 'req-11111111-2222-3333-4444-555555555555'
    context.RequestContext(global_request_id=afar)
    assert made.get('/').json()['X-Openstack-Request-Id'] == afar
    named = made.get('/', headers={'X-OpenStack-Request-ID': first.request_id}).json()
    assert named['X-Openstack-Request-Id'] == first.request_id


@pytest.mark.parametrize(
    'ask',
    [
        lambda adapter: adapter.get('/resource_providers', raise_exc=False),
        lambda adapter: adapter.get_endpoint(),
    ],
)
@pytest.mark.parametrize('status', [401, 404])  # 404: an application credential that was deleted
def test_credentials_that_keystone_refuses_are_named(configured, ask, status):
    def refuse(environ, start_response):
        answer = webob.Response(status=status, json={'error': {'code': status, 'message': 'No.'}})
        return answer(environ, start_response)

    session = requests.Session()
    wsgi.mount(session, 'http://keystone.local', refuse)
    conf = configured(
        '[cloud]\nauth_type = v3password\nauth_url = http://keystone.local/v3\n'
        'username = cyborg\nuser_domain_id = default\npassword = wrong\n'
        '[placement]\nauth_section = cloud\n'
    )
    with pytest.raises(exceptions.ClientException, match=r'Keystone.*\[cloud\].*No\.'):
        ask(keystone.connect(conf, 'placement', session))


def test_what_a_service_does_not_find_is_no_fault_of_the_credentials(configured):
    def know_nothing(environ, start_response):
        return webob.Response(status=404, json={})(environ, start_response)

    session = requests.Session()
    wsgi.mount(session, 'http://service.local', know_nothing)
    conf = configured(
        '[nova]\nauth_type = admin_token\nendpoint = http://service.local\ntoken = secret'
    )
    with pytest.raises(exceptions.NotFound):
        keystone.connect(conf, 'nova', session).get('/servers/1')
