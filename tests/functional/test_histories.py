# SPDX-License-Identifier: Apache-2.0
"""Random histories of a cloud in which everything fails: in the end nothing is stuck or lost.

CYBORG_FAULT_HISTORIES says how many; CYBORG_FAULT_SEED where to begin, to repeat one.
"""

import os

import pytest

from tests.fixtures.world import World

pytestmark = pytest.mark.embedded
COUNT = int(os.environ.get('CYBORG_FAULT_HISTORIES', '50'))
FIRST = int(os.environ.get('CYBORG_FAULT_SEED', '1'))
#: so many are one test, so that several processes can share them
TOGETHER = 25
STEPS = 40


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(0)
@pytest.mark.parametrize('first', range(FIRST, FIRST + COUNT, TOGETHER))
def test_whatever_happens_everything_ends(world, first):
    for seed in range(first, min(first + TOGETHER, FIRST + COUNT)):
        world.begin(seed)
        for _ in range(STEPS):
            world.step()
        world.settle()
        problems = list(world.problems())
        assert not problems, (
            f'CYBORG_FAULT_SEED={first} CYBORG_FAULT_HISTORIES={seed - first + 1} repeats it, '
            f'with those before it in the same world: {problems}\n' + '\n'.join(world.told)
        )
