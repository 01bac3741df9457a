# SPDX-License-Identifier: Apache-2.0
"""A simulated bus answers as a kernel does: these tables were read off a real one."""

import errno

import pytest

from cyborg.accelerator import pci

ADDRESS = '0000:6b:00.0'
P = f'bus/pci/devices/{ADDRESS}'
VF = 'bus/pci/devices/0000:6b:01.0'


@pytest.fixture
def card(host):
    """A QuickAssist card without virtual functions."""
    host.plug_in('8086:4940', at=ADDRESS, vfs=0)
    return pci.Function.at(host.sysfs, ADDRESS)


class TestAFunction:
    def test_it_hangs_from_a_bridge_and_is_linked_from_the_bus(self, host, card):
        real = card.path.resolve().relative_to(host.sysfs.path)
        assert str(real) == f'devices/pci0000:6a/0000:6a:1c.0/{ADDRESS}'
        assert card.link('subsystem').name == 'pci'
        assert pci.Function.at(host.sysfs, '0000:6a:1c.0').class_code == '060400'

    def test_its_attributes_are_spelled_as_the_kernel_spells_them(self, card):
        assert card.read('vendor') == '0x8086'
        assert card.read('class') == '0x0b4000'
        assert card.read('numa_node') == '-1'
        assert card.read('driver_override') == '(null)'
        assert card.read('uevent').splitlines() == [
            'DRIVER=4xxx',
            'PCI_CLASS=B4000',
            'PCI_ID=8086:4940',
            'PCI_SUBSYS_ID=8086:0000',
            f'PCI_SLOT_NAME={ADDRESS}',
            'MODALIAS=pci:v00008086d00004940sv00008086sd00000000bc0Bsc40i00',
        ]
        config = (card.path / 'config').read_bytes()
        assert config[:4] + config[8:12] == bytes.fromhex('86804049 4000400b')

    @pytest.mark.parametrize(
        ('name', 'number'),
        [('vendor', errno.EACCES), ('absent', errno.ENOENT), ('qat', errno.EISDIR)],
    )
    def test_not_everything_can_be_written(self, card, answer, name, number):
        assert answer(f'{P}/{name}', '1') == number

    def test_an_event_can_be_asked_for(self, card, answer, events):
        assert answer(f'{P}/uevent', 'add') is None
        assert events == [('add', 'pci', ADDRESS)]


class TestVirtualFunctions:
    @pytest.mark.parametrize(
        ('text', 'number'),
        [
            ('', None),
            ('\n', errno.EINVAL),
            ('four', errno.EINVAL),
            ('-1', errno.EINVAL),
            ('65536', errno.EINVAL),
            ('17', errno.ERANGE),
            ('16', None),
            ('0', None),
        ],
    )
    def test_how_many_may_be_asked_for(self, card, answer, text, number):
        assert answer(f'{P}/sriov_numvfs', text) == number

    def test_they_are_there_when_the_write_returns(self, card, host):
        card.write('sriov_numvfs', '3')
        parts = card.virtual_functions
        assert [part.address for part in parts.values()] == [
            '0000:6b:01.0',
            '0000:6b:01.1',
            '0000:6b:01.2',
        ]
        assert all(part.link('physfn').name == ADDRESS for part in parts.values())
        assert not parts[0].has('sriov_totalvfs')
        assert parts[0].driver == '4xxxvf'
        assert parts[0].iommu_group != card.iommu_group
        assert card.read('sriov_numvfs') == '3'

    def test_from_some_to_others_leads_through_none(self, card, answer):
        card.write('sriov_numvfs', '2')
        assert answer(f'{P}/sriov_numvfs', '2') is None
        assert answer(f'{P}/sriov_numvfs', '3') == errno.EBUSY
        assert answer(f'{P}/sriov_numvfs', '0') is None
        assert card.virtual_functions == {}
        assert answer(f'{P}/sriov_numvfs', '3') is None

    def test_only_the_cards_own_driver_makes_them(self, card, answer):
        (card / 'driver').write('unbind', ADDRESS)
        assert answer(f'{P}/sriov_numvfs', '2') == errno.ENOENT
        assert answer(f'{P}/sriov_numvfs', '0') is None  # as many as there are

    def test_they_go_with_the_driver(self, card, host):
        card.write('sriov_numvfs', '2')
        (card / 'driver').write('unbind', ADDRESS)
        assert card.virtual_functions == {}
        assert [each.address for each in pci.functions(host.sysfs)] == ['0000:6a:1c.0', ADDRESS]

    def test_they_stay_without_a_driver_if_that_is_asked_for(self, card):
        card.write('sriov_drivers_autoprobe', '0')
        card.write('sriov_numvfs', '1')
        assert card.virtual_functions[0].driver is None

    def test_events_come_in_the_kernels_order(self, card, events):
        card.write('sriov_numvfs', '1')
        assert events == [
            ('add', 'pci', '0000:6b:01.0'),
            ('change', 'pci', '0000:6b:01.0'),
            ('bind', 'pci', '0000:6b:01.0'),
            ('change', 'pci', ADDRESS),
        ]
        events.clear()
        card.write('sriov_numvfs', '0')
        assert events[:2] == [('unbind', 'pci', '0000:6b:01.0'), ('remove', 'pci', '0000:6b:01.0')]

    def test_they_may_sit_on_another_bus(self, host):
        host.plug_in('8086:4940', at='0000:6b:1f.0', vfs=16)
        far = pci.Function.at(host.sysfs, '0000:6b:1f.0').virtual_functions[15]
        assert far.address == '0000:6c:01.7'


class TestBinding:
    def test_a_function_goes_to_vfio_and_back(self, host, card, answer):
        card.write('driver_override', 'vfio-pci')
        (card / 'driver').write('unbind', ADDRESS)
        assert card.driver is None
        assert not card.has('qat')
        host.sysfs.write('bus/pci/drivers_probe', ADDRESS)
        assert card.driver == 'vfio-pci'
        assert not card.has('qat')
        card.write('driver_override', '\n')
        (card / 'driver').write('unbind', ADDRESS)
        assert answer('bus/pci/drivers/4xxx/bind', ADDRESS) is None
        assert (card.driver, card.has('qat')) == ('4xxx', True)

    @pytest.mark.parametrize(
        ('name', 'text', 'number'),
        [
            ('drivers_probe', '0000:ff:00.0', errno.ENODEV),
            ('drivers/4xxx/bind', '0000:ff:00.0', errno.ENODEV),
            ('drivers/4xxx/bind', ADDRESS, errno.EBUSY),
            ('drivers/vfio-pci/bind', ADDRESS, errno.ENODEV),
            ('drivers/vfio-pci/unbind', ADDRESS, errno.ENODEV),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, card, answer, name, text, number):
        assert answer(f'bus/pci/{name}', text) == number


class TestRemovalByHand:
    def test_a_removed_card_comes_back_with_a_rescan(self, host, card):
        card.write('remove', '1')
        assert not card.exists()
        assert host.cards == {ADDRESS: 'Intel QAT 4xxx'}
        host.sysfs.write('bus/pci/rescan', '1')
        assert card.driver == '4xxx'

    @pytest.mark.parametrize('is_ruled', [False, True])
    def test_its_virtual_functions_do_not_unless_a_rule_makes_them(self, host, is_ruled):
        host.plug_in('8086:4940', at=ADDRESS, vfs=2, vfs_by_rule=is_ruled)
        card = pci.Function.at(host.sysfs, ADDRESS)
        for _ in range(2):
            card.write('remove', '1')
            host.sysfs.write('bus/pci/rescan', '1')
            assert len(card.virtual_functions) == (2 if is_ruled else 0)
            assert card.read('sriov_numvfs') == ('2' if is_ruled else '0')


class TestQuickAssist:
    @pytest.mark.parametrize(
        ('state', 'name', 'text', 'number'),
        [
            ('up', 'state', 'up', None),
            ('up', 'state', 'down', None),
            ('down', 'state', 'down', None),
            ('up', 'state', 'sideways', errno.EINVAL),
            ('up', 'cfg_services', 'dc', errno.EINVAL),
            ('down', 'cfg_services', 'dc', None),
            ('down', 'cfg_services', 'tea', errno.EINVAL),
        ],
    )
    def test_services_change_while_it_is_down(self, card, answer, state, name, text, number):
        card.write('qat/state', state)
        assert answer(f'{P}/qat/{name}', text) == number
        if number is None:
            assert card.read(f'qat/{name}') == text

    def test_it_does_not_go_down_while_a_guest_has_a_part_of_it(self, card, host, answer):
        card.write('sriov_drivers_autoprobe', '0')
        card.write('sriov_numvfs', '1')
        host.sysfs.write(f'{VF}/driver_override', 'vfio-pci')
        host.sysfs.write('bus/pci/drivers_probe', '0000:6b:01.0')
        for text in ('down', 'up', 'sideways'):
            assert answer(f'{P}/qat/state', text) == errno.EBUSY

    def test_its_state_is_nothing_that_events_tell_of(self, card, events):
        card.write('qat/state', 'down')
        assert events == []


class TestFpga:
    def test_virtual_functions_are_as_many_as_ports(self, host, answer):
        host.plug_in('8086:bcce', at=ADDRESS, vfs=0)
        assert answer(f'{P}/sriov_numvfs', '1') == errno.EINVAL
        assert answer(f'{P}/sriov_numvfs', '2') is None

    def test_regions_are_counted_host_wide(self, host):
        host.plug_in('8086:09c4', at=ADDRESS)
        host.plug_in('8086:09c4', at='0000:6d:00.0')
        names = [each.name for each in (host.sysfs / 'class/fpga_region').children()]
        assert names == ['region0', 'region1', 'region2', 'region3']
        host.pull_out(ADDRESS)
        left = (host.sysfs / 'class/fpga_region').children()
        assert [each.name for each in left] == ['region2', 'region3']
        assert all(each.exists() for each in left)
