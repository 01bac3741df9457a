# SPDX-License-Identifier: Apache-2.0
"""The content of the access log."""

import logging

import pytest
import webob

from cyborg.api.middleware.access_log import AccessLog
from cyborg.context import RequestContext

TOKEN = 'gAAAAAB-secret'


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.DEBUG, 'cyborg.access')
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def ask(path, application=None, **environ):
    request = webob.Request.blank(path, environ=environ, headers={'X-Auth-Token': TOKEN})
    return request.get_response(AccessLog(application or webob.Response('{}')))


def test_a_request_is_one_line_without_its_token(lines):
    ask('/v2/devices?limit=3', REMOTE_ADDR='192.0.2.7')
    [(level, line)] = lines()
    assert level == 'INFO'
    assert line.startswith(
        '192.0.2.7 "GET /v2/devices?limit=3" status: 200 len: 2 microversion: - time: 0.'
    )
    assert TOKEN not in line


@pytest.mark.parametrize('path', ['/', '/healthcheck', '/metrics'])
def test_probes_are_logged_for_developers_only(lines, path):
    ask(path)
    [(level, _)] = lines()
    assert level == 'DEBUG'


def test_an_application_that_fails_is_logged_as_500(lines):
    def broken(environ, start_response):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask('/v2/devices', broken)
    [(_, line)] = lines()
    assert 'status: 500' in line


def test_nobody_can_forge_a_line(lines):
    ask('/v2/a%0Ab%1B%22?x=%0a', application=webob.Response())
    ask('/v2', QUERY_STRING='x=\n"\x1b')
    for _, line in lines():
        assert line.isprintable() and line.count('"') == 2


def test_a_long_path_is_cut(lines):
    ask('/v2/' + 'x' * 5000)
    [(_, line)] = lines()
    assert len(line) < 1300


def test_a_request_that_was_refused_is_not_logged_as_the_one_before(lines, caplog):
    RequestContext(project_id='another', request_id='req-another')  # left on this thread
    ask('/v2/devices', webob.Response(status=401), **{'openstack.request_id': 'req-mine'})
    [record] = caplog.records
    assert 'project: - request_id: req-mine' in record.getMessage()
    assert record.context.request_id == 'req-mine'
