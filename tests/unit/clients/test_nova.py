# SPDX-License-Identifier: Apache-2.0
"""The meaning of answers of Nova, and of a proxy in its place."""

import json

import pytest
import requests
from keystoneauth1 import exceptions

from cyborg import errors
from cyborg.clients.nova import Nova

EVENTS = [('server', 'first', 'completed'), ('server', 'second', 'completed')]
UNKNOWN = json.dumps({'itemNotFound': {'code': 404, 'message': 'No instances found'}})


class Answering:
    """An adapter to somebody who always says the same."""

    def __init__(self, status, text='{}'):
        self._response = requests.Response()
        self._response.status_code, self._response._content = status, text.encode()

    def get(self, *args, **kwargs):
        return self._response

    post = get


def told(*codes):
    return json.dumps(
        {
            'events': [
                {'server_uuid': server, 'tag': arq, 'status': status, 'code': code}
                for (server, arq, status), code in zip(EVENTS, codes, strict=True)
            ]
        }
    )


@pytest.mark.parametrize(
    'status, text, codes',
    [
        (200, told(200, 200), [200, 200]),
        (207, told(200, 422), [200, 422]),
        (207, told(404, 400), [404, 400]),
        (404, UNKNOWN, [404, 404]),
        (400, '{"badRequest": {}}', [400, 400]),
        (500, '{"computeFault": {}}', [500, 500]),
    ],
)
def test_each_event_has_its_answer(status, text, codes):
    assert Nova(Answering(status, text)).send_events(EVENTS) == codes


@pytest.mark.parametrize(
    'status, text',
    [
        (401, '{}'),
        (403, '{}'),
        (429, ''),
        (502, '<html>'),
        (503, ''),
        (504, ''),
        (404, '<html>Not Found</html>'),
        (404, '{}'),
        (200, '<html>Welcome</html>'),
        (200, '[]'),
    ],
)
def test_what_is_not_nova_or_will_not_have_us_is_asked_again(status, text):
    with pytest.raises(errors.Unavailable):
        Nova(Answering(status, text)).send_events(EVENTS)


def test_a_nova_that_cannot_be_reached_is_asked_again():
    class Away:
        def post(self, *args, **kwargs):
            raise exceptions.ConnectFailure('nobody listens')

    with pytest.raises(errors.Unavailable, match='nobody listens'):
        Nova(Away()).send_events(EVENTS)


def test_who_is_not_shown_all_servers_is_told():
    assert Nova(Answering(200)).sees_all()
    assert not Nova(Answering(403)).sees_all()
    with pytest.raises(errors.Unavailable):
        Nova(Answering(503)).sees_all()


class Listing:
    """An adapter to a Nova that lists two servers a page."""

    def __init__(self, **projects):
        self.projects = projects
        self.asked = []

    def get(self, path, params, **kwargs):
        self.asked.append((path, params))
        names = list(self.projects)
        start = 1 + names.index(params['marker']) if 'marker' in params else 0
        page = [{'id': name, 'tenant_id': self.projects[name]} for name in names[start : start + 2]]
        return Answering(200, json.dumps({'servers': page})).get()


def test_the_projects_of_servers_are_read_page_by_page():
    service = Listing(a='p', b='q', c='q', d='r', e='r')
    assert Nova(service).projects_of(['a', 'c']) == {'a': 'p', 'c': 'q'}
    assert service.asked == [
        ('/servers/detail', {'all_tenants': 1}),
        ('/servers/detail', {'all_tenants': 1, 'marker': 'b'}),
    ]
    assert Nova(service).projects_of(['e', 'unknown']) == {'e': 'r'}


def test_a_list_that_ignores_where_to_go_on_ends():
    listed = json.dumps({'servers': [{'id': 'a', 'tenant_id': 'p'}]})
    assert Nova(Answering(200, listed)).projects_of(['b']) == {}


@pytest.mark.parametrize(
    'status, text, words',
    [
        (403, '{}', 'needs the role admin'),
        (503, '', 'answered 503'),
        (200, '<html>', 'does not list'),
        (200, '{}', 'does not list'),
        (200, '[]', 'does not list'),
    ],
)
def test_who_is_not_shown_projects_is_told(status, text, words):
    with pytest.raises(errors.Unavailable, match=words):
        Nova(Answering(status, text)).projects_of(['server'])


def test_a_server_is_gone_only_when_nova_says_so():
    assert Nova(Answering(200)).exists('server')
    assert not Nova(Answering(404, UNKNOWN)).exists('server')
    for status, text in (
        (404, '<html>Not Found</html>'),
        (404, 'null'),
        (403, '{}'),
        (500, '{}'),
    ):
        with pytest.raises(errors.Unavailable):
            Nova(Answering(status, text)).exists('server')


@pytest.mark.parametrize(
    'status, text, is_allowed',
    [
        # the server does not exist, which Nova finds out after it has looked at the policy
        (404, UNKNOWN, True),
        (207, '{"events": []}', True),
        (403, '{"forbidden": {}}', False),
    ],
)
def test_nova_tells_whether_we_may_send_events(status, text, is_allowed):
    assert Nova(Answering(status, text)).accepts_events() is is_allowed


@pytest.mark.parametrize('status, text', [(401, '{}'), (404, '<html>'), (503, '{}')])
def test_somebody_else_does_not_tell_whether_we_may_send_events(status, text):
    with pytest.raises(errors.Unavailable, match=str(status)):
        Nova(Answering(status, text)).accepts_events()


def test_the_status_of_a_server_is_told_and_none_of_one_that_is_gone():
    assert Nova(Answering(200, '{"server": {"status": "BUILD"}}')).status('server') == 'BUILD'
    assert Nova(Answering(404, UNKNOWN)).status('server') is None
    for status, text in ((404, '<html>Not Found</html>'), (404, '{}'), (403, '{}'), (500, '{}')):
        with pytest.raises(errors.Unavailable):
            Nova(Answering(status, text)).status('server')
