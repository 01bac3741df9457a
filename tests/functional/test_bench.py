# SPDX-License-Identifier: Apache-2.0
"""Every measurement of the benchmark works, on as little as can be; how fast is not asked."""

import pytest

from tools.bench import agent_rounds, availability, life, lists, operation_counts, start
from tools.bench.scale import TINY
from tools.bench.sites import Embedded

pytestmark = pytest.mark.embedded


@pytest.fixture(scope='module')
def site():
    with Embedded() as made:
        yield made


def values(figures):
    return {figure.key: figure.value for figure in figures}


def test_a_life_is_measured_beside_its_floor(site):
    found = values(life.measure(site, TINY))
    for stored in TINY.stored:
        assert found[f'life: life p50 @ stored={stored} clients=1'] > 0
        assert found[f'life: life to floor @ stored={stored} clients=1'] > 0
        assert found[f'life: lives to floor @ stored={stored} clients=2'] > 0
    assert site.ask('GET', '/accelerator_requests')['arqs'] == []


def test_lists_are_measured_beside_their_queries(site):
    found = values(lists.measure(site, TINY))
    for key in lists.COLLECTIONS.values():
        assert found[f'lists: list p50 @ devices=3 of={key}'] > 0
        assert found[f'lists: show p50 @ devices=3 of={key}'] > 0


def test_all_pages_are_looked_at(site, monkeypatch):
    monkeypatch.setattr(lists, 'PAGE', 1)
    found = values(lists.measure(site, TINY))
    assert found['lists: late to early @ devices=3 of=devices'] > 0


def test_operations_cost_the_same_statements_each_time(site):
    first, second = (values(operation_counts.measure(site, TINY)) for _ in range(2))
    assert first == second
    assert first['counts: RPC calls @ operation=bind'] == 1


def test_the_availability_of_a_profile_is_measured_without_placement(site):
    found = values(availability.measure(site, TINY))
    for groups in ('one', 'two'):
        assert found[f'availability: p50 in one process @ hosts=10 groups={groups}'] > 0
        assert found[f'availability: CPU Placement @ hosts=10 groups={groups}'] > 0
    memory = 'availability: memory of the largest process'
    assert found[f'{memory} @ hosts=10 service=standalone'] > 0
    assert site.ask('GET', '/devices')['devices'][0]['hostname'] == 'compute1'


def test_an_agent_s_rounds_are_counted(site):
    found = values(agent_rounds.measure(site, TINY))
    for size in ('small', 'large'):
        unchanged = f'host={size} round=unchanged'
        assert found[f'report: RPC casts @ {unchanged}'] == 1
        assert found[f'report: statements @ {unchanged}'] == 1
        assert found[f'report: Placement calls @ {unchanged}'] == 0
        assert found[f'report: Placement calls @ host={size} round=first'] > 0


def test_services_are_weighed(site):
    found = values(start.measure(site, TINY))
    assert found['start: start @ service=standalone'] > 0
    for what in ('memory', 'memory of the largest process'):
        assert found[f'start: {what} @ service=standalone when=after load'] > 1
