# SPDX-License-Identifier: Apache-2.0
"""Every measurement of the benchmark works, on as little as can be; how fast is not asked."""

import pytest

from tools.bench import life
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
