# SPDX-License-Identifier: Apache-2.0
"""The base of endpoints: errors of RPC methods, whose rows a caller sees, when binds end."""

import datetime
import types

import oslo_messaging as messaging
import pytest
from oslo_db import exception as db_exc

from cyborg import context, errors
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.db.sqlalchemy import clock, engine


class Limits:
    """Keystone's limits: a number, None, or an error."""

    def __init__(self, answer):
        self._answer = answer

    def of(self, project_id):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def endpoint(db, configured):
    """An endpoint that sends nothing, and so needs neither agents nor Nova."""

    def make(text='', limits=None):
        return Endpoint(configured(text), db, None, None, None, None, limits)

    return make


def caller(**facts):
    return context.RequestContext(overwrite=False, **facts)


# -- errors ------------------------------------------------------------------------------------


class Failing:
    def __init__(self, *failures):
        self.failures = list(failures)

    @exposed
    def do_something(self):
        if self.failures:
            raise self.failures.pop(0)
        return 'done'


def test_a_deadlock_is_tried_again():
    assert Failing(db_exc.DBDeadlock(), db_exc.DBDeadlock()).do_something() == 'done'


def test_our_errors_reach_the_caller_as_they_are_and_are_no_faults_of_the_server():
    with pytest.raises(messaging.ExpectedException) as caught:
        Failing(errors.NoFreeHandle(rp='rp', host='host', uuid='uuid')).do_something()
    assert isinstance(caught.value.exc_info[1], errors.NoFreeHandle)


def test_a_database_that_is_away_is_a_503_without_its_details(monkeypatch):
    impatient = types.SimpleNamespace(sleep=lambda seconds: None)
    monkeypatch.setattr(engine.oslo_db_api, 'time', impatient)
    lost = [engine.ConnectionLost('password=secret') for _ in range(20)]
    with pytest.raises(messaging.ExpectedException) as caught:
        Failing(*lost).do_something()
    error = caught.value.exc_info[1]
    assert isinstance(error, errors.Unavailable)
    assert 'secret' not in error.faultstring


def test_other_errors_are_faults_of_the_server():
    with pytest.raises(ZeroDivisionError):
        Failing(ZeroDivisionError()).do_something()


# -- who sees what -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ('who', 'requests_of', 'profiles_of'),
    [
        ({'project_id': 'p'}, 'p', 'p'),
        # no project is not all projects
        ({}, '', ''),
        ({'project_id': 'p', 'is_admin': True}, None, None),
        # a service sees all requests, and the profiles of the user for whom it acts
        ({'project_id': 'p', 'is_service_user': True}, None, 'p'),
        # one that acts for a user sees what that user sees
        ({'project_id': 'p', 'is_service': True}, 'p', 'p'),
    ],
)
def test_a_caller_sees_requests_and_profiles_of_these_projects(
    endpoint, who, requests_of, profiles_of
):
    made = endpoint()
    assert made.scope(caller(**who)).project_id == requests_of
    assert made.audience(caller(**who)) == profiles_of


# -- limits and deadlines ----------------------------------------------------------------------


def test_without_limits_keystone_is_not_asked(endpoint):
    allowance = endpoint().allowance('p')
    assert allowance.limit is None and allowance.error is None


def test_the_limit_of_a_project_is_read(endpoint):
    assert endpoint(limits=Limits(7)).allowance('p').limit == 7


def test_that_a_limit_is_unknown_is_an_error_only_where_it_is_needed(endpoint):
    error = errors.LimitUnavailable(why='Keystone is away.')
    assert endpoint(limits=Limits(error)).allowance('p').error is error


def test_a_bind_that_loads_an_image_has_more_time(endpoint):
    made = endpoint('[conductor]\nbind_timeout = 60\nprogram_timeout = 600')
    before = clock.now()
    deadlines = made.deadlines()
    assert deadlines.program - deadlines.prepare == datetime.timedelta(seconds=600)
    assert deadlines.prepare - before >= datetime.timedelta(seconds=60)


def test_an_agent_is_silent_after_the_configured_time(endpoint):
    made = endpoint('[conductor]\nheartbeat_timeout = 45')
    before = clock.now()
    heard = made.silent_since() + datetime.timedelta(seconds=45)
    assert before <= heard <= clock.now()
