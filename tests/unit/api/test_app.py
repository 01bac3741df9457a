# SPDX-License-Identifier: Apache-2.0
"""From a configuration to a pipeline."""

import gc
import sys

import pytest
import webob
from oslo_config import cfg
from osprofiler import initializer, opts, web

from cyborg import conf as options
from cyborg import errors, tracing
from cyborg.api import app
from cyborg.api.middleware import auth_token
from cyborg.common import profiler
from tests.fixtures import deployers
from tests.unit.api.conftest import fault, uuid


@pytest.fixture
def noauth(conf, conductor):
    conf.set_override('auth_strategy', 'noauth2', 'api')
    return app.load_app(conf, conductor)


@pytest.fixture
def keystone(conf, conductor):
    """What asks Keystone, as a user whom nobody has to know here."""
    auth_token.register_opts(cfg.CONF)
    cfg.CONF.set_override('auth_type', 'none', 'keystone_authtoken')
    yield app.load_app(conf, conductor)
    cfg.CONF.clear_override('auth_type', 'keystone_authtoken')


def ask(application, method='GET', path='/v2/devices', **kwargs):
    return webob.Request.blank(path, method=method, **kwargs).get_response(application)


def test_the_pipeline_ends_at_the_conductor_it_was_given(noauth, conductor):
    answer = ask(noauth, headers={'X-Auth-Token': 'me:mine'})
    assert answer.json == {'devices': []}
    [context] = conductor.contexts
    assert (context.user_id, context.project_id) == ('me', 'mine')
    assert context.is_admin
    assert context.is_service


def test_a_request_has_an_id_of_ours_and_one_of_its_senders(noauth, conductor):
    theirs = f'req-{uuid(1)}'
    answer = ask(noauth, headers={'X-OpenStack-Request-ID': theirs})
    [context] = conductor.contexts
    assert context.global_request_id == theirs
    assert context.request_id == answer.headers['X-OpenStack-Request-ID'] != theirs


def test_two_applications_of_one_process_do_not_meet(conf, conductor, noauth):
    bare = app.make_app(conf, conductor)
    assert ask(noauth).status_int == 200
    assert ask(bare).status_int == 403
    assert ask(noauth).status_int == 200


def test_with_keystone_only_discovery_is_open(keystone, conductor):
    assert ask(keystone, path='/').status_int == ask(keystone, path='/v2/').status_int == 200
    assert ask(keystone, headers={'X-Roles': 'admin'}).status_int >= 400
    assert not conductor.calls


def test_a_body_that_is_too_large_is_not_read(noauth, conductor):
    largest = cfg.CONF.oslo_middleware.max_request_body_size
    answer = ask(noauth, 'POST', '/v2/device_profiles', body=b' ' * (largest + 1))
    assert answer.status_int == 413
    assert fault(answer)
    assert not conductor.calls


def _ask_without_a_length(application):
    request = webob.Request.blank('/v2/device_profiles', method='POST')
    request.body = b' ' * (cfg.CONF.oslo_middleware.max_request_body_size + 1)
    request.content_type = 'application/json'
    del request.environ['CONTENT_LENGTH']
    request.environ['wsgi.input_terminated'] = True
    answer = request.get_response(application)
    return answer.status_int, fault(answer)


def test_neither_is_one_that_does_not_say_how_large_it_is(noauth):
    status, sentence = _ask_without_a_length(noauth)
    assert (status, 'too large' in sentence) == (413, True)
    gc.collect()  # nothing is left to the collector to close


def test_a_load_balancer_may_ask_without_a_token(noauth):
    assert ask(noauth, path='/healthcheck').status_int == 200


@pytest.mark.parametrize(
    'is_trusted, link', [(False, 'http://localhost/v2/'), (True, 'https://cloud.example/v2/')]
)
def test_a_proxy_may_say_where_we_are_if_the_operator_trusts_it(noauth, is_trusted, link):
    cfg.CONF.set_override('enable_proxy_headers_parsing', is_trusted, 'oslo_middleware')
    try:
        answer = ask(
            noauth,
            path='/v2',
            headers={'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'cloud.example'},
        )
    finally:
        cfg.CONF.clear_override('enable_proxy_headers_parsing', 'oslo_middleware')
    assert answer.json['links'] == [{'rel': 'self', 'href': link}]


@pytest.mark.parametrize(
    'text', ['[pipeline:main]\npipeline = api\n[app:api]\n{factory}', '[app:main]\n{factory}']
)
def test_a_paste_file_of_ones_own_is_used(conf, conductor, tmp_path, text):
    paste = tmp_path / 'mine.ini'
    paste.write_text(text.format(factory='paste.app_factory = cyborg.api.app:app_factory'))
    conf.set_override('api_paste_config', str(paste), 'api')
    answer = ask(app.load_app(conf, conductor), headers={'X-Roles': 'admin', 'X-Project-Id': 'p'})
    assert answer.json == {'devices': []}


@pytest.fixture
def of_deployers(conf, conductor, tmp_path, request):
    """The pipeline of kolla-ansible and OpenStack-Helm, or another that a test asks for."""
    pipeline = getattr(request, 'param', 'cors request_id authtoken api_v2')
    written = deployers.write('kolla-ansible/api-paste.ini', tmp_path)
    written.write_text(written.read_text().replace('cors request_id authtoken api_v2', pipeline))
    conf.set_override('api_paste_config', str(written), 'api')
    auth_token.register_opts(cfg.CONF)
    cfg.CONF.set_override('auth_type', 'none', 'keystone_authtoken')
    yield app.load_app(conf, conductor)
    cfg.CONF.clear_override('auth_type', 'keystone_authtoken')


def test_a_load_balancer_needs_no_token_whatever_the_paste_file_has(of_deployers):
    assert ask(of_deployers, path='/healthcheck').status_int == 200
    assert ask(of_deployers).status_int == 401


def test_a_refusal_has_our_form_whatever_the_paste_file_has(of_deployers):
    assert fault(ask(of_deployers)) == 'A valid token is needed.'


def test_a_body_is_limited_whatever_the_paste_file_has(of_deployers):
    largest = cfg.CONF.oslo_middleware.max_request_body_size
    answer = ask(of_deployers, 'POST', '/v2/device_profiles', body=b' ' * (largest + 1))
    assert answer.status_int == 413


def test_a_healthcheck_of_the_paste_file_is_the_only_one(conf, conductor, tmp_path):
    switch = tmp_path / 'out-of-service'
    switch.touch()
    paste = tmp_path / 'mine.ini'
    paste.write_text(
        '[pipeline:main]\npipeline = healthcheck api\n'
        '[app:api]\npaste.app_factory = cyborg.api.app:app_factory\n'
        '[filter:healthcheck]\npaste.filter_factory = '
        'cyborg.api.middleware.healthcheck:HealthcheckMiddleware.factory\n'
        f'backends = disable_by_file\ndisable_by_file_path = {switch}\n'
    )
    conf.set_override('api_paste_config', str(paste), 'api')
    application = app.load_app(conf, conductor)
    assert ask(application, path='/healthcheck').status_int == 503


TRACED = 'cors request_id osprofiler authtoken api_v2'


@pytest.mark.parametrize('of_deployers', [TRACED], indirect=True)
def test_the_filter_osprofiler_passes_requests_on_unless_it_is_enabled(of_deployers):
    assert ask(of_deployers, path='/v2').status_int == 200


@pytest.fixture
def without_osprofiler(monkeypatch):
    monkeypatch.setattr(tracing, 'profiler', None)


@pytest.mark.usefixtures('without_osprofiler')
def test_a_filter_without_its_library_is_told_and_left_out(caplog):
    application = object()
    assert profiler.WsgiMiddleware.factory({})(application) is application
    assert 'Install osprofiler' in caplog.text


def test_osprofiler_traces_who_has_the_key(conf, monkeypatch):
    started = []
    options.register(cfg.CONF)
    opts.set_defaults(cfg.CONF)
    cfg.CONF.set_override('enabled', True, 'profiler')
    cfg.CONF.set_override('hmac_keys', 'key', 'profiler')
    monkeypatch.setattr(initializer, 'init_from_conf', lambda *given: started.append(given[2:]))
    try:
        wrapped = profiler.WsgiMiddleware.factory({}, hmac_keys='key', enabled='yes')(object())
    finally:
        cfg.CONF.clear_override('enabled', 'profiler')
        cfg.CONF.clear_override('hmac_keys', 'profiler')
    assert isinstance(wrapped, web.WsgiMiddleware)
    assert started == [('cyborg', 'api', cfg.CONF.host)]


def test_a_missing_paste_file_is_said_in_one_sentence(conf):
    conf.set_override('api_paste_config', 'nowhere.ini', 'api')
    with pytest.raises(errors.ConfigError, match='nowhere.ini'):
        app.load_app(conf)


def test_the_installed_paste_file_is_the_last_resort(conf, noauth):
    assert not conf.find_file('api-paste.ini')
    assert ask(noauth, path='/').status_int == 200


@pytest.mark.parametrize(
    ('has_password', 'module', 'package'),
    [
        (False, 'memcache', 'python-memcached'),
        (True, 'bmemcached', 'python-binary-memcached'),
    ],
)
def test_a_cache_that_cannot_be_asked_is_told_at_the_start(
    conf, conductor, keystone, monkeypatch, has_password, module, package
):
    monkeypatch.setitem(sys.modules, module, None)
    for name, value in (
        ('memcached_servers', ['127.0.0.1:11211']),
        ('memcache_sasl_enabled', has_password),
    ):
        cfg.CONF.set_override(name, value, 'keystone_authtoken')
    try:
        with pytest.raises(errors.ConfigError, match=f'memcached_servers.*pip install {package},'):
            app.load_app(conf, conductor)
    finally:
        for name in ('memcached_servers', 'memcache_sasl_enabled'):
            cfg.CONF.clear_override(name, 'keystone_authtoken')


def test_nobody_is_served_by_somebody_who_cannot_ask_keystone(conf, conductor):
    with pytest.raises(errors.ConfigError, match=r'\[keystone_authtoken\] auth_type is not set'):
        app.load_app(conf, conductor)
