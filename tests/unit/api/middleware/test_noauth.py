# SPDX-License-Identifier: Apache-2.0
"""Without authentication every caller is an administrator."""

import pytest
import webob
import webob.dec

from cyborg.api.middleware import noauth
from cyborg.context import RequestContext


@webob.dec.wsgify
def api(request):
    context = RequestContext.from_environ(request.environ, overwrite=False)
    return webob.Response(
        json_body=[
            context.user_id,
            context.project_id,
            context.system_scope,
            context.domain_id,
            context.roles,
            context.service_roles,
        ]
    )


@pytest.fixture
def app():
    return noauth.NoAuthMiddleware.factory({})(api)


@pytest.mark.parametrize(
    'token, user, project',
    [
        (None, 'noauth', 'noauth'),
        ('', 'noauth', 'noauth'),
        ('me', 'me', 'noauth'),
        ('me:mine', 'me', 'mine'),
        (':mine', 'noauth', 'mine'),
        ('me:mine:too', 'me', 'mine:too'),
        ('m' * 300 + ':' + 'p' * 300, 'm' * 64, 'p' * 64),
    ],
)
def test_a_token_is_what_one_says(app, token, user, project):
    headers = {} if token is None else {'X-Auth-Token': token}
    answer = webob.Request.blank('/v2/devices', headers=headers).get_response(app)
    assert answer.json == [
        user,
        project,
        None,
        None,
        ['admin', 'manager', 'member', 'reader'],
        ['service'],
    ]


def test_nothing_else_is_believed(app):
    answer = webob.Request.blank(
        '/',
        headers={
            'X-Roles': 'reader',
            'X-User-Id': 'x',
            'X-Project-Id': 'x',
            'X-Service-Roles': '',
            'OpenStack-System-Scope': 'all',
            'X-Domain-Id': 'd',
        },
    ).get_response(app)
    assert answer.json == [
        'noauth',
        'noauth',
        None,
        None,
        ['admin', 'manager', 'member', 'reader'],
        ['service'],
    ]
