# SPDX-License-Identifier: Apache-2.0
"""Load balancers learn whether to send us requests, and nobody else notices."""

import pytest
import webob
import webob.dec

from cyborg.api.middleware import healthcheck


@webob.dec.wsgify
def api(request):
    return webob.Response(text='the API')


@pytest.fixture
def switch(tmp_path):
    return tmp_path / 'out-of-service'


@pytest.fixture
def app(switch):
    wrap = healthcheck.HealthcheckMiddleware.factory(
        {}, path='/healthcheck', backends='disable_by_file', disable_by_file_path=str(switch)
    )
    return wrap(api)


def test_an_operator_takes_an_api_out_of_service_with_a_file(app, switch):
    switch.touch()
    assert webob.Request.blank('/healthcheck').get_response(app).status_int == 503


def test_a_healthy_api_says_so(app):
    answer = webob.Request.blank('/healthcheck').get_response(app)
    assert (answer.status_int, answer.text) == (200, 'OK')


@pytest.mark.parametrize('path', ['/', '/v2', '/healthcheck/', '/v2/healthcheck'])
def test_every_other_path_is_the_apis_own(app, path):
    assert webob.Request.blank(path).get_response(app).text == 'the API'


def test_the_check_answers_under_a_prefix_too(app):
    request = webob.Request.blank('/healthcheck', environ={'SCRIPT_NAME': '/accelerator'})
    assert request.get_response(app).text == 'OK'
