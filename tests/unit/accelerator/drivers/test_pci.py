# SPDX-License-Identifier: Apache-2.0
"""Any PCI function that is listed."""

import json

import pytest

from cyborg import errors

ADDRESS = '0000:6b:00.0'


@pytest.fixture
def listed(conf):
    def listed(*specs):
        conf.set_override('passthrough_whitelist', [json.dumps(spec) for spec in specs], 'pci')

    return listed


@pytest.fixture
def discover(load):
    return lambda: list(load('pci_driver').discover())


def test_nothing_is_offered_that_is_not_listed(host, discover):
    host.plug_in('8086:37c8', at=ADDRESS)
    assert discover() == []


def test_a_listed_card_is_given_out_whole(host, listed, discover):
    listed({'vendor_id': '8086', 'product_id': '37c8'})
    host.plug_in('8086:37c8', at=ADDRESS, vfs=0)
    host.plug_in('8086:4940', at='0000:6d:00.0')
    [device] = discover()
    assert (device.type, device.vendor, device.model) == ('PCI', '8086', '8086 37c8')
    [deployable] = device.deployables
    assert (deployable.name, deployable.resource_class) == (ADDRESS, 'CUSTOM_PCI')
    assert deployable.traits == [
        'CUSTOM_PCI_8086_37C8',
        'CUSTOM_PCI_8086',
        'CUSTOM_PCI_PRODUCT_ID_37C8',
    ]


def test_class_traits_and_network_are_the_lists(host, listed, discover):
    listed(
        {
            'address': '0000:6b:*',
            'resource_class': 'crypto',
            'traits': ['gold', 'HW_CPU_X86'],
            'physical_network': 'physnet1',
        }
    )
    host.plug_in('8086:37c8', at=ADDRESS, vfs=0)
    [deployable] = discover()[0].deployables
    assert deployable.resource_class == 'CUSTOM_CRYPTO'
    assert {'CUSTOM_GOLD', 'HW_CPU_X86', 'CUSTOM_PHYSNET1'} <= set(deployable.traits)
    assert deployable.attach_handles[0].info['physical_network'] == 'physnet1'


def test_listed_virtual_functions_belong_to_their_card(host, listed, discover):
    listed({'vendor_id': '8086', 'product_id': '37c9', 'address': '0000:6b:01.[0-3]'})
    host.plug_in('8086:37c8', at=ADDRESS)
    [device] = discover()
    assert (device.key, device.deployables[0].name) == (ADDRESS, ADDRESS)
    assert [handle.key for handle in device.deployables[0].attach_handles] == [
        'vf0',
        'vf1',
        'vf2',
        'vf3',
    ]


def test_a_card_with_virtual_functions_is_not_given_out_whole(host, listed, discover):
    listed({'product_id': '37c8'})
    host.plug_in('8086:37c8', at=ADDRESS)
    [device] = discover()
    assert device.deployables == []
    assert 'list these in [pci] passthrough_whitelist' in device.fault


def test_bridges_are_never_offered(host, listed, discover):
    listed({'vendor_id': '8086'})
    host.plug_in('10de:1eb8', at='0000:3b:00.0')
    assert discover() == []


def test_without_an_iommu_nothing_is_offered(host, listed, discover):
    listed({'product_id': '37c8'})
    host.plug_in('8086:37c8', at=ADDRESS, vfs=0, iommu=False)
    assert 'is in no IOMMU group' in discover()[0].fault


@pytest.mark.parametrize(
    ('facts', 'sentence'),
    [
        ({'model': '144d:a80a', 'nvme': {'namespaces': [{'mounted': True}]}}, 'nvme0n1 is mounted'),
        ({'model': '8086:1592', 'vfs': 0, 'net': {'name': 'ens1', 'up': True}}, 'ens1 is up'),
    ],
)
def test_what_the_host_lives_on_is_not_offered(host, listed, discover, facts, sentence):
    listed({'address': ADDRESS})
    host.plug_in(at=ADDRESS, **facts)
    assert f'{ADDRESS} is used by the host: {sentence}' in discover()[0].fault


def test_virtual_functions_of_a_disk_that_the_host_uses_are_not_offered(host, listed, discover):
    listed({'vendor_id': '1b36', 'product_id': '0010'})
    host.plug_in('1b36:0010', at=ADDRESS, vfs=2, nvme={'namespaces': [{'mounted': True}]})
    [device] = discover()
    assert device.deployables == []
    assert 'nvme0n1 is mounted' in device.fault


def test_a_card_whose_clock_the_host_uses_is_not_offered(host, listed, discover):
    listed({'vendor_id': '1d9b'})
    host.plug_in('1d9b:0400', at=ADDRESS, timecard={'serial': '1', 'opened_by': 'ptp4l'})
    assert 'ptp4l has ptp0 open' in discover()[0].fault


class TestSpecs:
    @pytest.mark.parametrize(
        ('address', 'is_found'),
        [
            (ADDRESS, True),
            ('0000:6B:00.0', True),
            ('*:6b:00.*', True),
            ('6b:00.0', True),
            (':6b:00.', True),
            ('0000:6b:*', True),
            ('*:*:*.*', True),
            ('0000:6b:00.1', False),
            ('*:6c:*', False),
            ({'bus': '6[a-f]'}, True),
            ({'bus': '6'}, False),
            ({'domain': '.*', 'bus': '.*', 'slot': '00', 'function': '[0-3]'}, True),
            ({'slot': '01'}, False),
        ],
    )
    def test_addresses_are_written_in_novas_ways(self, host, listed, discover, address, is_found):
        listed({'address': address, 'vendor_id': '8086', 'product_id': '0x37C8'})
        host.plug_in('8086:37c8', at=ADDRESS, vfs=0)
        assert bool(discover()) is is_found

    @pytest.mark.parametrize(('name', 'is_found'), [('ens1', True), ('ens2', False)])
    def test_cards_may_be_named_by_their_interface(self, host, listed, discover, name, is_found):
        listed({'devname': name})
        host.plug_in('8086:1592', at=ADDRESS, vfs=0, net={'name': 'ens1'})
        assert bool(discover()) is is_found

    def test_several_may_be_in_one_list_with_what_only_nova_understands(
        self, host, listed, discover
    ):
        listed([{'product_id': '1592', 'managed': 'no'}, {'product_id': '37c8'}])
        host.plug_in('8086:37c8', at=ADDRESS, vfs=0)
        assert len(discover()) == 1

    @pytest.mark.parametrize(
        ('text', 'sentence'),
        [
            ('{', 'is not understood'),
            ('7', 'an entry must be an object'),
            ('{"vendor": "8086"}', 'unknown keys: vendor'),
            ('{"vendor_id": 8086}', 'vendor_id must be a string'),
            ('{"vendor_id": "intel"}', 'intel is not an id of four hexadecimal digits'),
            ('{"address": "here"}', 'here is not an address like'),
            ('{"address": 7}', '7 is not an address like'),
            ('{"address": {"slot": "("}}', 'is not understood'),
            ('{"address": {"port": "1"}}', 'unknown parts of an address: port'),
            ('{"address": "*:*:*", "devname": "eth0"}', 'exclude one another'),
            ('{"traits": [7]}', 'a trait must be a name'),
            ('{"traits": "日本"}', 'does not name a trait'),
            ('{"resource_class": "~"}', 'does not name a trait or resource class'),
            ('{"traits": 7}', 'is not understood'),
        ],
    )
    def test_a_mistake_is_one_sentence(self, conf, load, text, sentence):
        conf.set_override('passthrough_whitelist', [text], 'pci')
        with pytest.raises(errors.ConfigError, match=sentence):
            load('pci_driver')
