# SPDX-License-Identifier: Apache-2.0
"""A proxy tells which URL its client has used, and is believed only if the operator says so."""

import pytest
import webob
import webob.dec
from oslo_config import cfg
from oslo_config import fixture as config_fixture

from cyborg.api.middleware.http_proxy_to_wsgi import HTTPProxyToWSGI


@webob.dec.wsgify
def shown(request):
    return webob.Response(text=request.application_url)


@pytest.fixture
def ask():
    """Returns the URL under which the application believes to be."""
    with config_fixture.Config(cfg.CONF) as conf:
        application = HTTPProxyToWSGI.factory({})(shown)

        def ask(believed, **headers):
            conf.config(enable_proxy_headers_parsing=believed, group='oslo_middleware')
            return webob.Request.blank('/', headers=headers).get_response(application).text

        yield ask


@pytest.mark.parametrize(
    'headers, url',
    [
        ({}, 'http://localhost'),
        ({'X-Forwarded-Proto': 'https'}, 'https://localhost:80'),
        ({'X-Forwarded-Host': 'cloud'}, 'http://cloud'),
        ({'X-Forwarded-Prefix': '/accelerator'}, 'http://localhost/accelerator'),
        ({'Forwarded': 'for=10.0.0.1;proto=https;host=cloud'}, 'https://cloud'),
    ],
)
def test_a_proxy_tells_the_url(ask, headers, url):
    assert ask(True, **headers) == url


def test_a_proxy_is_not_believed_by_default(ask):
    assert ask(False, **{'X-Forwarded-Proto': 'https'}) == 'http://localhost'
