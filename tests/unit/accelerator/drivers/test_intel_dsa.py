# SPDX-License-Identifier: Apache-2.0
"""Intel DSA and IAA."""

import pytest

DSA, IAA = '0000:6a:01.0', '0000:6a:02.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('intel_dsa_driver').discover())


@pytest.fixture(autouse=True)
def cards(host):
    host.plug_in('8086:0b25', at=DSA)
    host.plug_in('8086:0cfe', at=IAA)


def test_each_kind_has_a_class_of_its_own(discover):
    assert [
        (device.model, device.deployables[0].resource_class, device.deployables[0].traits)
        for device in discover()
    ] == [
        ('Intel DSA', 'CUSTOM_DSA', ['CUSTOM_DSA_INTEL_DSA', 'CUSTOM_INTEL_0B25']),
        ('Intel IAA', 'CUSTOM_IAA', ['CUSTOM_DSA_INTEL_IAA', 'CUSTOM_INTEL_0CFE']),
    ]


def test_the_classes_are_the_operators(conf, discover):
    conf.set_override('dsa_resource_class', 'CUSTOM_COPIER', group='intel_dsa_driver')
    assert [device.deployables[0].resource_class for device in discover()] == [
        'CUSTOM_COPIER',
        'CUSTOM_IAA',
    ]


def test_one_whose_queues_the_host_uses_is_not_offered(host, discover):
    host.sysfs.write('bus/dsa/drivers/idxd/bind', 'dsa0')
    assert all(device.fault is None for device in discover())
    host.sysfs.write('bus/dsa/drivers/user/bind', 'wq0.0')
    used, free = discover()
    assert used.deployables == []
    assert 'its work queue wq0.0 is enabled' in used.fault
    assert free.fault is None
    host.sysfs.write('bus/dsa/drivers/user/unbind', 'wq0.0')
    assert len(discover()[0].deployables) == 1


def test_one_that_has_halted_says_so_and_keeps_its_place(host, discover):
    host.tree.file(f'{host.tree.real(f"bus/pci/devices/{DSA}")}/dsa0/state', 'halted')
    [device, _] = discover()
    assert 'has halted' in device.fault
    assert len(device.deployables) == 1
