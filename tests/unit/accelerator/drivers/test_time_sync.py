# SPDX-License-Identifier: Apache-2.0
"""Time cards."""

import pytest

from cyborg.accelerator import pci

ADDRESS = '0000:85:00.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('time_sync_driver').discover())


def test_a_card_is_given_out_whole(host, discover):
    host.plug_in('1d9b:0400', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.vendor, device.model) == ('HPTS', '1d9b', 'Meta Time Card')
    assert device.vendor_board_info == {'serial': '1a:2b:3c:4d:5e:6f', 'gnss': 'SYNC'}
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('CUSTOM_HPTS', 1)
    assert deployable.traits == ['CUSTOM_HPTS_META_TIME_CARD', 'CUSTOM_HPTS_GNSS']


def test_only_what_lasts_is_told_of_a_lost_signal(host, discover):
    host.plug_in(
        '1d9b:0400', at=ADDRESS, timecard={'serial': '1', 'gnss': 'LOST @ 2026-01-01T00:00:00'}
    )
    [device] = discover()
    assert device.vendor_board_info['gnss'] == 'LOST'


def test_its_identity_and_traits_stay_while_a_guest_has_it(host, discover):
    host.plug_in('1d9b:0400', at=ADDRESS)
    [before] = discover()
    card = pci.Function.at(host.sysfs, ADDRESS)
    card.write('driver_override', 'vfio-pci')
    (card / 'driver').write('unbind', ADDRESS)
    host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
    [after] = discover()
    assert not card.has('timecard')
    assert after.key == before.key
    assert after.deployables[0].obj_to_primitive() == before.deployables[0].obj_to_primitive()


def test_the_card_that_keeps_the_hosts_time_is_not_offered(host, conf, discover):
    conf.set_override('host_addresses', [ADDRESS], group='time_sync_driver')
    host.plug_in('1d9b:0400', at=ADDRESS)
    host.plug_in('18d4:1008', at='0000:86:00.0')
    kept, offered = discover()
    assert kept.deployables == []
    assert 'kept for the host' in kept.fault
    assert offered.deployables[0].num_accelerators == 1


def test_a_card_whose_clock_a_service_has_open_is_not_offered(host, discover):
    host.plug_in('1d9b:0400', at=ADDRESS, timecard={'serial': '1', 'opened_by': 'chronyd'})
    host.plug_in('18d4:1008', at='0000:86:00.0')
    used, free = discover()
    assert used.deployables == []
    assert f'{ADDRESS} is used by the host: chronyd has ptp0 open' in used.fault
    assert free.fault is None and free.deployables


def test_a_card_is_offered_once_the_service_has_closed_its_clock(host, discover):
    host.plug_in('1d9b:0400', at=ADDRESS, timecard={'serial': '1', 'opened_by': 'phc2sys'})
    assert discover()[0].fault
    host.tree.remove('proc/800')
    [device] = discover()
    assert device.fault is None and device.deployables
