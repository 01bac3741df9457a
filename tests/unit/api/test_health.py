# SPDX-License-Identifier: Apache-2.0
"""The backends of the health check ask a conductor, seldom, and tell what it says."""

import threading

import oslo_messaging as messaging
import pytest
import webob
from oslo_config import cfg

from cyborg import errors
from cyborg.api import health
from cyborg.api.middleware import healthcheck

ALL = 'cyborg_conductor, cyborg_database, cyborg_placement'
PATIENCE = 60


class Conductor:
    def __init__(self):
        self.calls = []
        self.answer = {}

    def check_health(self, context, names):
        self.calls.append(names)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {name: self.answer.get(name) for name in names}


@pytest.fixture
def conductor():
    return Conductor()


@pytest.fixture
def ask(conductor):
    """Returns status and text of a health check with these backends."""
    made = {}

    def ask(backends=ALL):
        if backends not in made:
            build = healthcheck.HealthcheckMiddleware.factory(
                {}, backends=backends, conductor=conductor
            )
            made[backends] = build(None)
        answer = webob.Request.blank('/healthcheck').get_response(made[backends])
        return answer.status_int, [line for line in answer.text.splitlines() if line]

    yield ask
    cfg.CONF.clear_override('backends', 'healthcheck')


def test_all_is_well_if_the_conductor_says_so(ask, conductor):
    assert ask() == (200, ['OK', 'OK', 'OK'])
    assert conductor.calls == [['database', 'placement']]


@pytest.mark.parametrize('part', health.PARTS)
def test_what_the_conductor_cannot_use_is_told(ask, conductor, part):
    conductor.answer = {part: 'It does not answer.'}
    status, text = ask()
    assert (status, sorted(text)) == (503, ['It does not answer.', 'OK', 'OK'])


def test_what_is_not_asked_for_is_not_checked(ask, conductor):
    conductor.answer = {'placement': 'It does not answer.'}
    assert ask('cyborg_conductor')[0] == 200
    assert conductor.calls == [[]]


@pytest.mark.parametrize(
    'error',
    [messaging.MessagingTimeout('too late'), messaging.MessageDeliveryFailure('no broker')],
)
def test_a_conductor_that_does_not_answer_is_a_failure_of_everything(ask, conductor, error):
    conductor.answer = error
    assert ask() == (503, [health.NO_CONDUCTOR] * 3)


def test_a_conductor_of_an_earlier_release_counts_as_well(ask, conductor):
    conductor.answer = errors.IncompatibleRelease(why='it does not have check_health.')
    assert ask()[0] == 200


def test_many_requests_cost_one_call(ask, conductor):
    for _ in range(10):
        ask()
    assert len(conductor.calls) == 1


def test_an_outcome_that_is_old_is_checked_again(ask, conductor, monkeypatch):
    monkeypatch.setattr(health, 'LIFETIME', 0)
    assert ask()[0] == 200
    conductor.answer = messaging.MessagingTimeout('too late')
    assert ask()[0] == 503


def test_while_one_request_checks_the_others_are_told_what_is_known(conductor, monkeypatch):
    monkeypatch.setattr(health, 'LIFETIME', 0)
    outcome = health.Outcome(conductor)
    assert outcome.failure(health.CONDUCTOR) is None
    is_asked, may_answer = threading.Event(), threading.Event()

    def check_health(context, names):
        is_asked.set()
        assert may_answer.wait(PATIENCE)
        raise messaging.MessagingTimeout('too late')

    conductor.check_health = check_health
    slow = threading.Thread(target=outcome.failure, args=[health.CONDUCTOR])
    slow.start()
    assert is_asked.wait(PATIENCE)
    assert outcome.failure(health.CONDUCTOR) is None
    may_answer.set()
    slow.join()
    conductor.check_health = lambda context, names: {}
    assert outcome.failure(health.CONDUCTOR) is None
