# SPDX-License-Identifier: Apache-2.0
"""Intel QuickAssist."""

import pytest

ADDRESS = '0000:6b:00.0'


@pytest.fixture
def discover(load):
    return lambda: list(load('intel_qat_driver').discover())


def test_each_virtual_function_is_one_for_a_guest(host, discover):
    host.plug_in('8086:4940', at=ADDRESS)
    [device] = discover()
    assert (device.type, device.model) == ('QAT', 'Intel 4xxx')
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('CUSTOM_QAT', 16)
    assert {handle.type for handle in deployable.attach_handles} == {'PCI'}


def test_its_traits_tell_product_and_services(host, discover):
    host.plug_in('8086:4940', at=ADDRESS)
    [device] = discover()
    assert device.deployables[0].traits == [
        'CUSTOM_QAT_INTEL_4XXX',
        'CUSTOM_QAT_4940',
        'CUSTOM_QAT_ASYM',
        'CUSTOM_QAT_SYM',
    ]


def test_other_services_are_other_traits(host, discover):
    host.plug_in('8086:4940', at=ADDRESS)
    card = host.sysfs / f'bus/pci/devices/{ADDRESS}'
    for name, text in (('state', 'down'), ('cfg_services', 'dc'), ('state', 'up')):
        card.write(f'qat/{name}', text)
    [device] = discover()
    assert 'CUSTOM_QAT_DC' in device.deployables[0].traits
    assert 'CUSTOM_QAT_SYM' not in device.deployables[0].traits


def test_a_card_that_is_down_keeps_its_place_and_says_so(host, discover):
    host.plug_in('8086:4940', at=ADDRESS)
    host.sysfs.write(f'bus/pci/devices/{ADDRESS}/qat/state', 'down')
    [device] = discover()
    assert device.deployables[0].num_accelerators == 16
    assert 'is down' in device.fault


def test_an_older_card_has_no_services_to_tell(host, discover):
    host.plug_in('8086:37c8', at=ADDRESS)
    [device] = discover()
    assert device.deployables[0].traits == ['CUSTOM_QAT_INTEL_C62X', 'CUSTOM_QAT_37C8']


def test_a_card_without_virtual_functions_is_given_out_whole(host, discover):
    host.plug_in('8086:37c8', at=ADDRESS, vfs=0)
    [device] = discover()
    [handle] = device.deployables[0].attach_handles
    assert (handle.key, handle.info['bus']) == ('pf', '6b')


def test_the_resource_class_is_the_operators(host, conf, discover):
    conf.set_override('resource_class', 'CUSTOM_CRYPTO', group='intel_qat_driver')
    host.plug_in('8086:37c8', at=ADDRESS)
    [device] = discover()
    assert device.deployables[0].resource_class == 'CUSTOM_CRYPTO'
