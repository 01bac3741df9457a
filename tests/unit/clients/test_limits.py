# SPDX-License-Identifier: Apache-2.0
"""Limits of projects, as oslo.limit reads them."""

import pytest
from oslo_config import cfg

from cyborg import errors
from cyborg.clients import limits as client
from tests.fixtures import limits

# the SDK warns of what it does itself
pytestmark = pytest.mark.filterwarnings('ignore::PendingDeprecationWarning')


@pytest.fixture
def asked():
    return client.KeystoneLimits(cfg.CONF)


def test_a_project_has_its_own_limit_or_the_registered_one(asked):
    with limits.told(5, mine=2):
        assert (asked.of('mine'), asked.of('other'), asked.of(None)) == (2, 5, 5)


def test_a_new_limit_holds_at_once(asked):
    with limits.told(5) as (defaults, projects):
        assert asked.of('mine') == 5
        defaults[limits.NAME] = 6
        assert asked.of('mine') == 6
        projects['mine'] = {limits.NAME: 7}
        assert asked.of('mine') == 7


def test_minus_one_is_no_limit(asked):
    with limits.told(5, mine=-1):
        assert (asked.of('mine'), asked.of('other')) == (None, 5)


def test_a_limit_that_is_not_registered_is_zero(asked):
    with limits.told():
        assert asked.of('mine') == 0


def test_a_keystone_that_is_away_is_told_in_one_sentence(asked):
    with limits.unanswered(), pytest.raises(errors.LimitUnavailable) as caught:
        asked.of('mine')
    assert '127.0.0.1' in caught.value.faultstring
    assert 'limit_requests' in caught.value.faultstring
    assert '\n' not in caught.value.faultstring


def test_a_keystone_that_comes_back_is_asked_again(asked):
    with limits.unanswered(), pytest.raises(errors.LimitUnavailable):
        asked.of('mine')
    with limits.told(3):
        assert asked.of('mine') == 3


def test_without_credentials_the_sentence_says_where_they_belong(asked):
    with limits.unanswered(auth_type=None):
        with pytest.raises(errors.LimitUnavailable, match=r'\[oslo_limit\]'):
            asked.of('mine')


def test_calls_to_keystone_end(asked):
    assert cfg.CONF.oslo_limit.timeout == client.TIMEOUT
