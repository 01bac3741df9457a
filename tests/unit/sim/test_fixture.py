# SPDX-License-Identifier: Apache-2.0
"""A simulated host as a fixture."""

from cyborg.sim.fixture import SimulatedHost


def test_a_host_lives_as_long_as_its_test():
    with SimulatedHost({'cards': [{'model': '10de:1eb8', 'at': '0000:3b:00.0'}]}) as fixture:
        place = fixture.host.sysfs.path
        assert fixture.host.cards == {'0000:3b:00.0': 'NVIDIA T4'}
        assert (place / 'bus/pci/devices/0000:3b:00.0').exists()
    assert not place.exists()
