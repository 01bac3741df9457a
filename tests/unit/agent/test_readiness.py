# SPDX-License-Identifier: Apache-2.0
"""When nova-compute can rely on the agent."""

import oslo_messaging as messaging
import pytest

from cyborg import errors, objects
from cyborg.agent.readiness import NOT_YET, UNDER_WAY, Readiness

OK = objects.Driver(name='gpu', status=objects.DriverStatus.OK)
FAILED = objects.Driver(name='gpu', status=objects.DriverStatus.FAILED, error='The bus hangs.')


@pytest.fixture
def readiness():
    return Readiness(['gpu'])


def look(readiness, *drivers, error=None):
    with readiness.round():
        readiness.note(drivers)
        if error:
            raise error


def test_before_the_first_round_has_ended_it_is_not_ready(readiness):
    assert readiness.obstacle() == NOT_YET
    with readiness.round():
        readiness.note([OK])
        assert readiness.obstacle() == NOT_YET
    assert readiness.obstacle() is None


def test_a_later_round_is_an_obstacle_until_it_ends(readiness):
    look(readiness, OK)
    with readiness.round():
        assert readiness.obstacle() == UNDER_WAY
    assert readiness.obstacle() is None


def test_a_driver_that_never_answered_is_named(readiness):
    look(readiness, FAILED)
    assert readiness.is_waiting
    assert readiness.obstacle() == 'Driver gpu has not answered yet: The bus hangs.'
    look(readiness, OK)
    assert not readiness.is_waiting
    assert readiness.obstacle() is None


def test_a_driver_that_fails_after_it_has_answered_is_no_obstacle(readiness):
    look(readiness, OK)
    look(readiness, FAILED)
    assert readiness.obstacle() is None


def test_a_compute_node_that_does_not_exist_yet_is_no_obstacle(readiness):
    with pytest.raises(errors.ProviderTreeMissing):
        look(readiness, OK, error=errors.ProviderTreeMissing(host='compute1'))
    assert readiness.obstacle() is None


@pytest.mark.parametrize(
    'error, said',
    [
        (errors.PlacementUnavailable(why='it is away.'), 'it is away'),
        (
            messaging.MessagingTimeout('No conductor answered report in time'),
            'No conductor answered',
        ),
        (RuntimeError('a bug'), 'see its log'),
    ],
)
def test_what_could_not_be_reported_or_published_is_an_obstacle(readiness, error, said):
    with pytest.raises(type(error)):
        look(readiness, OK, error=error)
    assert said in readiness.obstacle()
    look(readiness, OK)
    assert readiness.obstacle() is None
