# SPDX-License-Identifier: Apache-2.0
"""The life of requests with exactly one fault, at each point at which one is possible.

Random histories have many faults at random points. Here every statement of a conductor, every
message, every call of an agent, of Glance, Placement and Nova fails once, or its process dies
there.
"""

import pytest

from cyborg import objects
from cyborg.db.sqlalchemy import models
from tests.fixtures.fpga import ADDRESS
from tests.fixtures.world import SERVICE, Chance, World

pytestmark = pytest.mark.embedded
#: so many tests share the points, and several processes the tests
TESTS = 12
#: more messages and jobs than any fault causes
MOST_TURNS = 30


class OneFault(Chance):
    """The ``number``th of all possible faults happens, and no other."""

    def __init__(self, number):
        super().__init__(seed=0)
        self.number, self.possible = number, 0

    def happens(self, probability):
        if self.is_calm:
            return False
        self.possible += 1
        return self.possible == self.number


class OrderedWorld(World):
    """A world in which a life goes its usual way."""

    def live(self, number):
        """Have requests created, bound and deleted with one fault; returns how many faults were
        possible."""
        self.begin(1)
        self.chance = fault = OneFault(number)
        for part in self.wire, self.nova, self.images:
            part._chance = fault
        for name, host, profile, place in (
            ('image', 'fpgas', f'image{self.blanked}', ADDRESS),
            ('vgpu', 'gpus', 'vgpu', ''),
        ):
            self.told.append(name)
            self._live_once(host, profile, place)
        possible = fault.possible
        self.settle()
        return possible

    @property
    def blanked(self):
        return list(self.images.functions).index(self.images.blanked)

    def _live_once(self, host, profile, place):
        self._call('create_arqs', profile)
        [provider] = {
            part.rp_uuid
            for part in self._rows(models.Deployable)
            if part.num_accelerators and part.name.startswith(host) and place in part.name
        }
        self._call('bind_arqs', [self._binding(row, host, provider) for row in self._initial()])
        self._perform(host)
        self._call('unbind_arqs', self._uuids())
        self._perform(host)
        self._call('delete_arqs', self._uuids())
        self._perform(host)

    def _binding(self, row, host, provider):
        return objects.Binding(
            arq_uuid=row.uuid,
            hostname=host,
            device_rp_uuid=provider,
            instance_uuid=self.servers[0],
        )

    def _initial(self):
        return [row for row in self._rows(models.ExtArq) if row.state == 'Initial']

    def _uuids(self):
        return [row.uuid for row in self._rows(models.ExtArq)]

    def _call(self, method, wanted):
        """What a client calls, and calls again if it gets no answer."""
        for _ in range(2):
            if wanted and self.act(lambda: self.conduct(method, SERVICE, wanted)):
                return

    def _perform(self, host):
        """The machinery does all that there is to do, and looks whether there is more."""
        for _ in range(MOST_TURNS):
            self._acting = host
            self.act(self.deliver)
            self.act(self.work)
            self.act(lambda: self.agents[host].inventory.sync())
            if not self.wire.messages and not self.agents[host].jobs.waiting:
                break
        self.act(self.sweep)
        self.act(self.post)


@pytest.fixture
def world(tmp_path):
    made = OrderedWorld(tmp_path)
    yield made
    made.close()


def test_a_life_without_a_fault_is_whole(world):
    assert world.live(0) > 100
    assert list(world.problems()) == []
    assert not world._uuids()
    kinds = [(task.kind, task.state) for task in world._rows(models.Task)]
    assert kinds == [('program', 'done'), ('clean', 'done'), ('release', 'done')]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize('first', range(1, TESTS + 1))
def test_whichever_single_step_fails_everything_ends(world, first):
    possible = world.live(0)
    for number in range(first, possible + 1, TESTS):
        world.live(number)
        problems = list(world.problems())
        assert not problems, f'fault {number}: {problems}\n' + '\n'.join(world.told)
