# SPDX-License-Identifier: Apache-2.0
"""An application of this process, reached with requests."""

import json
import threading

import pytest
import requests
import webob
from oslo_context import context

from cyborg.clients import wsgi

URL = 'http://echo.local'


def echo(environ, start_response):
    """Answers what it was asked."""
    request = webob.Request(environ)
    body = json.dumps(
        {
            'method': request.method,
            'path': request.path_qs,
            'body': request.text,
            'token': request.headers.get('X-Auth-Token'),
        }
    )
    response = webob.Response(
        body,
        request.headers.get('X-Status', '200 OK'),
        headerlist=[('X-Case', 'Kept'), ('Content-Type', 'text/json; charset=utf-8')],
    )
    return response(environ, start_response)


@pytest.fixture
def session():
    session = requests.Session()
    wsgi.mount(session, URL, echo)
    return session


def test_a_request_arrives_whole_and_the_answer_returns_whole(session):
    answer = session.post(
        f'{URL}/things?name=in:%C3%A4,b',
        json={'ü': 1},
        headers={'X-Auth-Token': 'admin', 'X-Status': '409 Taken'},
    )
    assert answer.json() == {
        'method': 'POST',
        'path': '/things?name=in:%C3%A4,b',
        'body': '{"\\u00fc": 1}',
        'token': 'admin',
    }
    assert (answer.status_code, answer.reason, answer.ok) == (409, 'Taken', False)
    assert answer.headers['x-case'] == 'Kept'
    assert answer.url == f'{URL}/things?name=in:%C3%A4,b'
    assert answer.encoding == 'utf-8'


def test_a_body_may_be_text_bytes_or_nothing(session):
    assert [session.put(URL, data=data).json()['body'] for data in ('ä', 'ä'.encode(), None)] == [
        'ä',
        'ä',
        '',
    ]


def test_only_what_is_below_the_prefix_stays_in_the_process(session):
    with pytest.raises(requests.ConnectionError):
        session.get('http://127.0.0.1:1/')


def test_other_sessions_of_the_process_are_left_alone(session):
    with pytest.raises(requests.ConnectionError):
        requests.get(f'{URL}/', timeout=5)


def test_the_caller_keeps_its_own_request_context(session):
    def application(environ, start_response):
        context.RequestContext(user_id='theirs')
        return webob.Response('done')(environ, start_response)

    wsgi.mount(session, URL, application)
    ours = context.RequestContext(user_id='ours')
    assert session.get(URL).text == 'done'
    assert context.get_current() is ours


def test_an_application_that_fails_fails_the_caller(session):
    def application(environ, start_response):
        raise ValueError('a bug')

    wsgi.mount(session, URL, application)
    with pytest.raises(ValueError, match='a bug'):
        session.get(URL)


def test_threads_may_share_it(session):
    answers = {}

    def ask(number):
        answers[number] = session.put(f'{URL}/{number}', data=str(number)).json()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(number, answer['path'], answer['body']) for number, answer in answers.items()} == {
        (number, f'/{number}', str(number)) for number in range(8)
    }
