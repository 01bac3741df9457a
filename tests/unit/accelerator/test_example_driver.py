# SPDX-License-Identifier: Apache-2.0
"""The driver of the driver guide does what the guide says."""

import runpy
from pathlib import Path

import pytest

from cyborg import errors
from cyborg.accelerator import mdev

GUIDE = Path(__file__).parents[3] / 'doc/source/contributor'
CARD = '0000:3b:00.0'
SHARED = {
    'driver': 'acme',
    'mdev': {'types': {'quarter': {'name': 'Acme Quarter', 'max_instance': 4}}},
}


@pytest.fixture
def driver(conf, host):
    guide = runpy.run_path(str(GUIDE / 'acme_turbo.py'))
    return guide['AcmeTurboDriver'](conf, host.sysfs)


def test_a_card_can_be_used_by_four(host, driver, stored):
    host.plug_in('1234:5678', at=CARD, **SHARED)
    [device] = driver.discover()
    [deployable] = device.deployables
    assert deployable.traits == ['CUSTOM_AICHIP_ACME_TURBO', 'CUSTOM_ACME_5678']
    for number, handle in enumerate(deployable.attach_handles, 1):
        driver.attach(stored(handle, number), None)
    with pytest.raises(errors.DriverFailed, match='no room'):
        driver.attach(stored(deployable.attach_handles[0], 5), None)


def test_attaching_and_detaching_may_be_repeated(host, driver, stored):
    host.plug_in('1234:5678', at=CARD, **SHARED)
    handle = stored(next(driver.discover()).deployables[0].attach_handles[0])
    for verb, is_there in (
        (lambda: driver.attach(handle, None), True),
        (lambda: driver.detach(handle), False),
    ):
        verb()
        verb()
        assert host.sysfs.has(f'{mdev.DEVICES}/{handle.uuid}') is is_there


def test_a_card_that_is_not_shared_says_how_to_share_it(host, driver):
    host.plug_in('1234:5679', at=CARD)
    [device] = driver.discover()
    assert device.deployables == []
    assert 'shared=1' in device.fault
