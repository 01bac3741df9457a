# SPDX-License-Identifier: Apache-2.0
"""What becomes one job, and what the agent knows of the handles it works on."""

import uuid

import pytest

from cyborg import objects
from cyborg.agent.attach import Attacher

SERVER, OTHER = str(uuid.uuid4()), str(uuid.uuid4())


class Jobs:
    """Keeps jobs until they are run."""

    def __init__(self):
        self.waiting = []

    def submit(self, card, delay, job, *arguments):
        self.waiting.append((card[1], delay, job, arguments))

    def shown(self):
        """(card, delay, handles) of each."""
        return [(card, delay, [work.handle.key for work in works])
                for card, delay, _, (works,) in self.waiting]

    def run(self):
        while self.waiting:
            _, _, job, arguments = self.waiting.pop(0)
            job(*arguments)


class Driver:
    name = 'driver'

    def __init__(self):
        self.gone = set()

    def attach(self, work):
        pass

    def detach(self, work):
        pass

    def lost(self, works):
        return [work for work in works if work.handle.key in self.gone]


class Conductor:
    def finish_work(self, context, hostname, outcomes):
        return []


def work(key, kind='detach', card='card', delay=0.0, turn=1, server=None):
    handle = objects.AttachHandle(uuid=str(uuid.uuid5(uuid.NAMESPACE_DNS, key)), key=key,
                                  type='MDEV', info={}, is_host_prepared=True)
    return objects.Work(kind=kind, handle=handle, turn=turn, driver_name='driver',
                        device_key=card, deployable_name='part', delay=delay,
                        instance_uuid=server, arq_uuid=server)


@pytest.fixture
def jobs():
    return Jobs()


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def attacher(jobs, driver):
    return Attacher('compute1', [driver], Conductor(), jobs)


def test_a_clean_up_waits_for_its_own_delay_only(attacher, jobs):
    attacher.do([work('stuck', delay=256.0), work('fresh'), work('another')])
    assert jobs.shown() == [
        ('card', 256.0, ['stuck']), ('card', 0.0, ['fresh']), ('card', 0.0, ['another'])]


def test_what_a_server_gets_on_a_card_is_one_job_unless_a_part_of_it_must_wait(attacher, jobs):
    attacher.do([work('a', 'attach', server=SERVER), work('b', 'attach', server=OTHER),
                 work('c', 'attach', server=SERVER), work('d', 'attach', 'far', server=SERVER),
                 work('e', 'attach', delay=8.0, server=SERVER)])
    assert jobs.shown() == [('card', 0.0, ['a', 'c']), ('card', 0.0, ['b']),
                            ('far', 0.0, ['d']), ('card', 8.0, ['e'])]


def test_handles_are_in_flux_from_the_order_until_a_look_that_began_after_its_end(
        attacher, jobs):
    one = work('one')
    before = attacher.count
    assert attacher.in_flux(before) == set()
    attacher.do([one])
    assert attacher.in_flux(before) == {one.handle.uuid}
    jobs.run()
    assert attacher.in_flux(before) == {one.handle.uuid}
    assert attacher.in_flux(attacher.count) == set()


def test_what_is_no_longer_as_it_was_left_is_lost_until_it_is_cleaned(attacher, jobs, driver):
    one, two = (work(key, 'attach', turn=3, server=SERVER) for key in ('one', 'two'))
    attacher.do([one, two])
    jobs.run()
    assert attacher.lost(['driver']) == {}
    driver.gone = {'two'}
    assert attacher.lost(['driver']) == {two.handle.uuid: 3}
    assert attacher.lost([]) == {}
    attacher.do([work('two', turn=3)])
    jobs.run()
    assert attacher.lost(['driver']) == {}
