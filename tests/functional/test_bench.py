# SPDX-License-Identifier: Apache-2.0
"""Every measurement of the benchmark works, on as little as can be; how fast is not asked."""

import pytest

from tools.bench import counts, life, lists, reports, start
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
    first, second = (values(counts.measure(site, TINY)) for _ in range(2))
    assert first == second
    assert first['counts: RPC calls @ operation=bind'] == 1


def test_an_agent_s_rounds_are_counted(site):
    found = values(reports.measure(site, TINY))
    for size in ('small', 'large'):
        unchanged = f'host={size} round=unchanged'
        assert found[f'report: RPC casts @ {unchanged}'] == 1
        assert found[f'report: statements @ {unchanged}'] == 1
        assert found[f'report: Placement calls @ {unchanged}'] == 0
        assert found[f'report: Placement calls @ host={size} round=first'] > 0


def test_services_are_weighed(site):
    found = values(start.measure(site, TINY))
    assert found['start: start @ service=standalone'] > 0
    assert found['start: memory @ service=standalone when=after load'] > 1
