# SPDX-License-Identifier: Apache-2.0
"""Intel network cards."""

import pytest

from cyborg import errors
from cyborg.accelerator import pci

ADDRESS = '0000:18:00.0'
OPTIONS = """
[nic_devices]
enabled_nic_types = x710_static
[x710_static]
physical_device_mappings = physnet1:{cards}
function_device_mappings = GTPv1:{cards}
"""


@pytest.fixture
def discover(load):
    return lambda: list(load('intel_nic_driver').discover())


def test_virtual_functions_of_a_named_card_go_to_guests(host, configure, discover):
    configure(OPTIONS.format(cards='ens1f0|ens2f0'))
    host.plug_in('8086:1572', at=ADDRESS, net={'name': 'ens1f0', 'up': True})
    [device] = discover()
    assert (device.type, device.model) == ('NIC', 'Intel X710')
    assert device.vendor_board_info == {'interface': 'ens1f0'}
    [deployable] = device.deployables
    assert (deployable.resource_class, deployable.num_accelerators) == ('CUSTOM_NIC', 4)
    assert deployable.traits == [
        'CUSTOM_NIC_INTEL_X710',
        'CUSTOM_NIC_1572',
        'CUSTOM_VF',
        'CUSTOM_GTPV1',
        'CUSTOM_PHYSNET1',
    ]
    handle = deployable.attach_handles[0]
    assert (handle.type, handle.info['physical_network']) == ('PCI', 'physnet1')


def test_a_card_that_is_not_named_is_the_hosts(host, configure, discover):
    configure(OPTIONS.format(cards='ens1f0'))
    host.plug_in('8086:1592', at=ADDRESS, net={'name': 'ens9f0'})
    assert discover() == []


def test_without_options_no_card_is_touched(host, discover):
    host.plug_in('8086:1592', at=ADDRESS)
    assert discover() == []


def test_a_card_that_is_named_by_its_address_may_go_as_a_whole(host, configure, discover):
    configure(OPTIONS.format(cards=ADDRESS))
    host.plug_in('8086:1592', at=ADDRESS, vfs=0)
    [device] = discover()
    [deployable] = device.deployables
    assert (deployable.attach_handles[0].key, 'CUSTOM_PF' in deployable.traits) == ('pf', True)
    before = deployable.obj_to_primitive()
    card = pci.Function.at(host.sysfs, ADDRESS)
    card.write('driver_override', 'vfio-pci')
    (card / 'driver').write('unbind', ADDRESS)
    host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
    assert discover()[0].deployables[0].obj_to_primitive() == before


@pytest.mark.parametrize(
    ('cards', 'net', 'sentence'),
    [
        (ADDRESS, {'name': 'ens1f0', 'up': True}, 'the host uses it: ens1f0 is up'),
        ('ens1f0', {'name': 'ens1f0'}, 'has no virtual functions: make some'),
    ],
)
def test_one_that_would_take_the_hosts_interface_away_does_not(
    host, configure, discover, cards, net, sentence
):
    configure(OPTIONS.format(cards=cards))
    host.plug_in('8086:1592', at=ADDRESS, vfs=0, net=net)
    [device] = discover()
    assert device.deployables == []
    assert sentence in device.fault


def test_a_function_needs_no_network(host, configure, discover):
    configure(
        '[nic_devices]\nenabled_nic_types = e810\n'
        f'[e810]\nfunction_device_mappings = GTPv1:{ADDRESS}, PFCP:{ADDRESS}\n'
    )
    host.plug_in('8086:1592', at=ADDRESS)
    [deployable] = discover()[0].deployables
    assert {'CUSTOM_GTPV1', 'CUSTOM_PFCP'} <= set(deployable.traits)
    assert 'physical_network' not in deployable.attach_handles[0].info


@pytest.mark.parametrize(
    ('mappings', 'sentence'),
    [
        ('physnet1', 'has physnet1, which is not like name:eth2'),
        ('physnet1:', 'has physnet1:, which is not like'),
        ('physnet1:eth1||eth2', 'which is not like'),
        ('physnet1:eth1, physnet2:eth1', 'eth1 is on more than one physical network'),
    ],
)
def test_a_mistake_is_one_sentence(configure, load, mappings, sentence):
    configure(
        '[nic_devices]\nenabled_nic_types = x710_static\n'
        f'[x710_static]\nphysical_device_mappings = {mappings}\n'
    )
    with pytest.raises(errors.ConfigError, match=sentence):
        load('intel_nic_driver')
