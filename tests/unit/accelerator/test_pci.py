# SPDX-License-Identifier: Apache-2.0
"""PCI functions as sysfs shows them, and cards that are passed through."""

import pytest

from cyborg import errors, objects
from cyborg.accelerator import pci
from cyborg.sim import Host


class Cards(pci.Driver):
    """All there is to write for a card that is passed through."""

    name = 'cards_driver'
    type = 'NIC'
    catalogue = (
        pci.Model('8086', ('37c8', '4940'), 'Maker Fast Card', 'CUSTOM_FAST', ('CUSTOM_BLUE',)),
        pci.Model('1d9b', '0400', 'Other Card', 'CUSTOM_OTHER', subdevices=('0007',)),
        pci.Model('10de', pci.ANY, 'Any Card', 'CUSTOM_ANY', classes=('0302',)),
    )


@pytest.fixture
def discover(conf, host):
    return lambda: list(Cards(conf, host.sysfs).discover())


class TestFunction:
    def test_it_tells_what_it_is(self, host):
        host.plug_in('10de:1eb8', at='0000:3b:00.0', numa_node=1, subsystem='10de:12a2')
        gpu = pci.Function.at(host.sysfs, '0000:3b:00.0')
        assert (gpu.vendor, gpu.device, gpu.subdevice) == ('10de', '1eb8', '12a2')
        assert (gpu.class_code, gpu.numa_node, gpu.driver) == ('030200', 1, 'nvidia')
        assert gpu.iommu_group.isdecimal()
        assert not gpu.is_virtual
        assert gpu.attach_info == {'domain': '0000', 'bus': '3b', 'device': '00', 'function': '0'}

    def test_what_it_lacks_is_absent(self, host):
        host.plug_in('10de:1eb8', at='0000:3b:00.0', driver=None, iommu=False, numa_node=-1)
        gpu = pci.Function.at(host.sysfs, '0000:3b:00.0')
        assert (gpu.driver, gpu.iommu_group, gpu.numa_node) == (None, None, None)

    def test_one_that_is_gone_has_nothing(self, host):
        gone = pci.Function.at(host.sysfs, '0000:3b:00.0')
        assert (gone.vendor, gone.class_code, gone.driver) == ('', '', None)
        assert gone.virtual_functions == {}

    def test_virtual_functions_are_found_by_their_links(self, host):
        host.plug_in('8086:4940', at='0000:6b:00.0')
        card = pci.Function.at(host.sysfs, '0000:6b:00.0')
        parts = card.virtual_functions
        assert list(parts) == list(range(16))  # in the order of numbers, not of names
        assert parts[0].address == '0000:6b:01.0'
        assert parts[10].address == '0000:6b:02.2'
        assert all(part.is_virtual and part.device == '4941' for part in parts.values())

    def test_one_whose_card_is_gone_still_is_virtual(self, host):
        host.plug_in('8086:4940', at='0000:6b:00.0')
        part = pci.Function.at(host.sysfs, '0000:6b:01.0')
        (part.path / 'physfn').unlink()
        (part.path / 'physfn').symlink_to('../gone')
        assert part.is_virtual

    def test_the_functions_of_a_card_know_one_another(self, host):
        host.plug_in('10ee:5000', at='0000:3b:00.0')
        host.plug_in('10ee:5001', at='0000:3b:00.1')
        host.plug_in('10ee:5001', at='0000:3c:00.1')
        for function in (0, 1):
            card = pci.Function.at(host.sysfs, f'0000:3b:00.{function}')
            assert [each.address for each in card.siblings] == ['0000:3b:00.0', '0000:3b:00.1']

    def test_entries_that_are_no_functions_are_passed_over(self, host):
        host.plug_in('10de:1eb8', at='0000:3b:00.0')
        (host.sysfs.path / pci.DEVICES / 'README').write_text('hello')
        addresses = [each.address for each in pci.functions(host.sysfs)]
        assert addresses == ['0000:3a:1c.0', '0000:3b:00.0']


class TestDiscovery:
    def test_a_card_is_a_device_with_one_deployable(self, host, discover):
        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=0, numa_node=1)
        [device] = discover()
        assert (device.key, device.type, device.vendor) == ('0000:6b:00.0', 'NIC', '8086')
        assert (device.model, device.driver_name) == ('Maker Fast Card', 'cards_driver')
        assert device.std_board_info == {
            'product_id': '4940',
            'controller': '0b4000',
            'numa_node': '1',
        }
        assert device.fault is None
        assert [(path.type, path.info['bus']) for path in device.control_paths] == [('PCI', '6b')]
        [deployable] = device.deployables
        assert (deployable.name, deployable.parent_name) == ('0000:6b:00.0', None)
        assert (deployable.resource_class, deployable.num_accelerators) == ('CUSTOM_FAST', 1)
        assert deployable.traits == ['CUSTOM_NIC_MAKER_FAST_CARD', 'CUSTOM_BLUE']
        [handle] = deployable.attach_handles
        assert (handle.type, handle.key, handle.is_host_prepared) == ('PCI', 'pf', False)
        assert handle.info == {'domain': '0000', 'bus': '6b', 'device': '00', 'function': '0'}

    def test_virtual_functions_go_to_guests_instead_of_the_card(self, host, discover):
        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=3)
        [device] = discover()
        [deployable] = device.deployables
        assert deployable.num_accelerators == 3
        assert [
            (handle.key, handle.info['device'], handle.info['function'])
            for handle in deployable.attach_handles
        ] == [('vf0', '01', '0'), ('vf1', '01', '1'), ('vf2', '01', '2')]

    def test_only_what_fits_the_catalogue_is_found(self, host, discover):
        host.plug_in('10de:1eb8', at='0000:3b:00.0')
        host.plug_in('10de:1234', at='0000:3c:00.0')  # of no class that is looked for
        host.plug_in('1d9b:0400', at='0000:3d:00.0')
        host.plug_in('1d9b:0400', at='0000:3e:00.0', subsystem='1d9b:0007')
        assert [(device.key, device.model) for device in discover()] == [
            ('0000:3b:00.0', 'Any Card'),
            ('0000:3e:00.0', 'Other Card'),
        ]

    def test_ids_may_be_part_of_traits_and_virtual_functions_of_a_class_of_their_own(
        self, conf, host
    ):
        class Shared(Cards):
            catalogue = (
                pci.Model(
                    pci.ANY,
                    pci.ANY,
                    'Any',
                    'PGPU',
                    ('CUSTOM_{vendor}_{device}',),
                    classes=('0b40',),
                    virtual_class='VGPU',
                ),
            )

        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=2)
        host.plug_in('8086:37c8', at='0000:6d:00.0', vfs=0)
        shared, whole = (device.deployables[0] for device in Shared(conf, host.sysfs).discover())
        assert (shared.resource_class, whole.resource_class) == ('VGPU', 'PGPU')
        assert 'CUSTOM_8086_4940' in shared.traits
        assert 'CUSTOM_8086_37C8' in whole.traits

    def test_without_an_iommu_nothing_is_offered_and_the_reason_told(self, host, discover):
        host.plug_in('10de:1eb8', at='0000:3b:00.0', iommu=False)
        [device] = discover()
        assert device.deployables == []
        assert 'is in no IOMMU group' in device.fault

    def test_a_card_that_shares_its_group_with_what_the_host_uses_is_not_offered(
        self, conf, tmp_path
    ):
        host = Host.described(
            tmp_path / 'shared',
            {
                'cards': [
                    {'model': '10de:1eb8', 'at': '0000:3b:00.0'},
                    {
                        'vendor': '10de',
                        'device': '10f0',
                        'class': '040300',
                        'at': '0000:3b:00.1',
                        'driver': 'snd_hda_intel',
                    },
                ],
                'groups': {'0000:3a:1c.0': 7, '0000:3b:00.0': 7, '0000:3b:00.1': 7},
            },
        )
        gpu = pci.Function.at(host.sysfs, '0000:3b:00.0')
        assert [each.address for each in gpu.companions] == ['0000:3b:00.1']  # and no bridge
        [device] = Cards(conf, host.sysfs).discover()
        assert 'shares its IOMMU group with 0000:3b:00.1' in device.fault
        sound = pci.Function.at(host.sysfs, '0000:3b:00.1')
        sound.write('driver_override', 'vfio-pci')
        (sound / 'driver').write('unbind', sound.address)
        host.sysfs.write('bus/pci/drivers_probe', sound.address)
        [device] = Cards(conf, host.sysfs).discover()
        assert device.fault is None

    def test_a_card_that_goes_while_it_is_looked_at_is_not_there(self, conf, host):
        host.plug_in('10de:1eb8', at='0000:3b:00.0')

        class Slow(Cards):
            def board_info(self, function):
                host.pull_out(function.address)
                return {}

        assert list(Slow(conf, host.sysfs).discover()) == []

    def test_a_card_in_use_looks_as_before(self, host, discover):
        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=2)
        before = [device.obj_to_primitive() for device in discover()]
        part = pci.Function.at(host.sysfs, '0000:6b:01.0')
        part.write('driver_override', 'vfio-pci')
        (part / 'driver').write('unbind', part.address)
        host.sysfs.write('bus/pci/drivers_probe', part.address)
        assert part.driver == 'vfio-pci'
        assert [device.obj_to_primitive() for device in discover()] == before


class TestHandle:
    def test_it_leads_back_to_its_function(self, conf, host, discover, stored):
        host.plug_in('8086:4940', at='0000:6b:00.0', vfs=2)
        [device] = discover()
        handle = stored(device.deployables[0].attach_handles[1])
        assert Cards(conf, host.sysfs).function(handle).address == '0000:6b:01.1'

    @pytest.mark.parametrize(
        'info',
        [
            {},
            {'domain': '0000', 'bus': '6b', 'device': '01'},
            {'domain': '..', 'bus': '..', 'device': 'x', 'function': '0'},
            {'domain': '0000', 'bus': '6b', 'device': '01', 'function': '0/../../x'},
        ],
    )
    def test_one_that_sits_nowhere_is_refused(self, conf, host, stored, info):
        handle = stored(objects.AttachHandle(key='vf0', type='PCI', info=info))
        with pytest.raises(errors.DriverFailed, match=handle.uuid):
            Cards(conf, host.sysfs).function(handle)
