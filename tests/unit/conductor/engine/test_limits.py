# SPDX-License-Identifier: Apache-2.0
"""How many requests a project may have."""

import pytest

from cyborg import errors
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.limits import UNLIMITED, Allowance
from cyborg.conductor.engine.unit_of_work import transact
from tests.fixtures.reporting_host import CAUSE

GROUPS = [{'resources:FPGA': '2'}, {'resources:PGPU': '1'}]


def create(host, allowance, project='project'):
    with transact(host.db, CAUSE) as unit:
        return len(arqs.create(unit, GROUPS, project, None, allowance))


def test_a_project_gets_as_many_requests_as_its_limit_and_no_more(host):
    assert create(host, Allowance(6)) == 3
    assert create(host, Allowance(6)) == 3
    with pytest.raises(errors.OverLimit, match='has 6 .* may have 6: 3 more'):
        create(host, Allowance(6))
    assert len(host.states()) == 6


def test_requests_of_other_projects_do_not_count(host):
    create(host, Allowance(3))
    assert create(host, Allowance(3), 'another') == 3


def test_the_units_of_all_groups_count_together(host):
    with pytest.raises(errors.OverLimit):
        create(host, Allowance(2))
    assert host.states() == []


def test_a_limit_of_none_is_not_a_limit_of_zero(host):
    assert create(host, UNLIMITED) == 3
    with pytest.raises(errors.OverLimit):
        create(host, Allowance(0), 'another')


def test_while_the_limit_cannot_be_read_nothing_is_created(host):
    unknown = errors.LimitUnavailable(why='Keystone is away.')
    with pytest.raises(errors.LimitUnavailable):
        create(host, Allowance(error=unknown))
    assert host.states() == []
