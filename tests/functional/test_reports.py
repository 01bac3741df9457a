# SPDX-License-Identifier: Apache-2.0
"""A host's report is taken in, whatever one card of it is like."""

import pytest

from cyborg.accelerator import pci
from cyborg.accelerator.drivers.fake import FakeDriver
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.fpga import ADDRESS, FpgaHost

OTHER = '0000:86:00.0'


@pytest.fixture
def fpgas(tmp_path):
    """A host whose only card has a region that somebody holds."""
    cloud = Cloud(tmp_path, more='[agent]\nresync_interval = 1\n')
    cloud.start()
    cloud.fpga = cloud.host(make=FpgaHost)
    cloud.profile('fpga', {'resources:FPGA': '1'})
    assert cloud.bind(cloud.request('fpga')).status_code == 202
    yield cloud
    cloud.stop()


def parts(cloud):
    return {
        each['name'].removeprefix('compute1_') for each in cloud.get('/deployables')['deployables']
    }


def faults(cloud):
    return sorted(bool(each['fault']) for each in cloud.get('/devices')['devices'])


def reserved(cloud):
    """Of each of our providers that offer something."""
    return {
        name: provider['inventories']['FPGA']['reserved']
        for name, provider in cloud.providers().items()
        if provider['inventories']
    }


def test_a_card_without_parts_of_which_a_region_is_held_hurts_no_other(fpgas):
    region = f'{ADDRESS}_region0'
    assert parts(fpgas) == {ADDRESS, region}
    # when the card loses its driver, and another card is plugged in
    fpgas.fpga.sysfs.write(f'bus/pci/devices/{ADDRESS}/driver/unbind', ADDRESS)
    assert pci.Function.at(fpgas.fpga.sysfs, ADDRESS).driver is None
    fpgas.fpga.plug_in('8086:09c4', at=OTHER)
    # then that is offered, and what is held stays with the card that it is a part of
    eventually(lambda: parts(fpgas) == {ADDRESS, region, OTHER, f'{OTHER}_region0'})
    eventually(lambda: reserved(fpgas)[f'compute1_{region}'] == 1)
    # and goes when it is let go
    assert fpgas.unbind(*fpgas.arqs()).status_code == 202
    eventually(lambda: parts(fpgas) == {OTHER, f'{OTHER}_region0'})


@pytest.fixture
def broken(monkeypatch):
    """Which of two cards are reported in a way that no table can hold, by their keys."""
    keys = set()

    def discover(self):
        for number in range(2):
            card = self._device(number)
            if card.key in keys:
                card.deployables *= 2  # two parts of one name
            yield card

    monkeypatch.setattr(FakeDriver, 'discover', discover)
    return keys


@pytest.mark.parametrize('is_known', [False, True])
def test_a_card_that_cannot_be_stored_has_a_fault_and_the_others_are_offered(
    cloud, broken, is_known
):
    if not is_known:
        broken.add('FakeDevice')
    cloud.host()
    if is_known:
        assert faults(cloud) == [False, False]
        broken.add('FakeDevice')
        cloud.agent().inventory.wake()
    eventually(lambda: faults(cloud) == [False, True])
    eventually(
        lambda: (
            reserved(cloud)
            == {'compute1_FakeDevice1': 0} | ({'compute1_FakeDevice': 16} if is_known else {})
        )
    )
    # when it can be stored again, all is well
    broken.clear()
    cloud.agent().inventory.wake()
    eventually(lambda: faults(cloud) == [False, False])
    eventually(lambda: reserved(cloud) == {'compute1_FakeDevice1': 0, 'compute1_FakeDevice': 0})
