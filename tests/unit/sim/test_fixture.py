# SPDX-License-Identifier: Apache-2.0
"""A simulated host as a fixture."""

import unittest

import fixtures
import yaml

from cyborg.sim.fixture import SimulatedHost

T4 = {'model': '10de:1eb8', 'at': '0000:3b:00.0'}


def test_a_host_lives_as_long_as_its_test():
    with SimulatedHost({'cards': [T4]}) as fixture:
        place = fixture.host.sysfs.path
        assert fixture.host.cards == {'0000:3b:00.0': 'NVIDIA T4'}
        assert (place / 'bus/pci/devices/0000:3b:00.0').exists()
    assert not place.exists()


def test_it_may_be_described_in_a_file(tmp_path):
    path = tmp_path / 'host.yaml'
    path.write_text(yaml.safe_dump({'cards': [T4]}))
    with SimulatedHost(path) as fixture:
        assert fixture.host.cards == {'0000:3b:00.0': 'NVIDIA T4'}


def test_a_host_may_have_no_card_at_first_and_tells_of_those_that_come():
    with SimulatedHost({}) as fixture:
        heard = []
        fixture.host.subscribe(heard.append)
        assert fixture.host.cards == {}
        fixture.host.plug_in(**T4)
        assert ('add', T4['at']) in {(event.action, event.device) for event in heard}


def test_a_test_case_of_openstack_uses_it():
    class Case(fixtures.TestWithFixtures, unittest.TestCase):
        def runTest(self):
            type(self).host = self.useFixture(SimulatedHost()).host
            assert len(self.host.cards) > 1  # the demo's

    result = Case().run()
    assert result.wasSuccessful(), result.errors + result.failures
    assert not Case.host.sysfs.path.exists()
