# SPDX-License-Identifier: Apache-2.0
"""Errors of other layers look as ours do."""

import pytest
import webob
import webob.dec
import webob.exc

from cyborg.api.middleware import faults
from tests.unit.api.conftest import fault


def behind(answer):
    """What comes through when a layer answers like this."""

    @webob.dec.wsgify
    def layer(request):
        if isinstance(answer, Exception) and not isinstance(answer, webob.Response):
            raise answer
        return answer

    return webob.Request.blank('/').get_response(faults.FaultsMiddleware.factory({})(layer))


@pytest.mark.parametrize(
    'error, status, word',
    [
        (webob.exc.HTTPRequestEntityTooLarge('Larger than (%s).'), 413, 'too large'),
        (webob.exc.HTTPServiceUnavailable('keystone.internal:5000'), 503, 'try again later'),
        (webob.exc.HTTPBadGateway('<b>nginx</b>'), 502, '502 Bad Gateway'),
    ],
)
def test_a_refusal_is_put_into_a_sentence(error, status, word):
    answer = behind(error)
    assert answer.status_int == status
    assert word in fault(answer)


def test_headers_stay(admin):
    answer = behind(webob.Response(status=401, headers={'WWW-Authenticate': 'Keystone'}))
    assert answer.headers['WWW-Authenticate'] == 'Keystone'
    assert fault(answer) == 'A valid token is needed.'


def test_what_a_layer_drops_is_caught():
    answer = behind(RuntimeError('secret'))
    assert answer.status_int == 500
    assert 'secret' not in answer.text
    assert fault(answer)


def test_our_own_errors_pass_as_they_are(admin):
    ours = admin.get('/v2/nothing')
    assert behind(ours).body == ours.body


@pytest.mark.parametrize('status', [200, 204, 302])
def test_what_is_no_error_passes_as_it_is(status):
    answer = behind(webob.Response(status=status, text='' if status == 204 else 'fine'))
    assert answer.status_int == status
    assert answer.text == ('' if status == 204 else 'fine')
