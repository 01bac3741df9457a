# SPDX-License-Identifier: Apache-2.0
"""Simulated virtual functions that take a type answer as those of a real host driver."""

import errno

import pytest

CARD = '0000:41:00.0'


def vf(number, name):
    route = 4 + number
    return f'bus/pci/devices/0000:41:{route >> 3:02x}.{route & 7}/nvidia/{name}'


def names(host, number):
    lines = host.sysfs.read(vf(number, 'creatable_vgpu_types')).splitlines()
    return [line.partition(' : ')[0] for line in lines if line[0].isdigit()]


class TestOneSize:
    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('10de:26b9', at=CARD, vfs=8)

    def test_only_virtual_functions_take_a_type(self, host):
        assert not host.sysfs.has(f'bus/pci/devices/{CARD}/nvidia')
        assert host.sysfs.read(vf(0, 'current_vgpu_type')) == '0'
        assert host.sysfs.read(vf(0, 'creatable_vgpu_types')).startswith('ID : vGPU Name\n1150 :')

    @pytest.mark.parametrize(
        ('text', 'number'),
        [
            ('1150', None),
            ('0', None),
            ('7', errno.EINVAL),
            ('nvidia-1150', errno.EINVAL),
            ('\n', errno.EINVAL),
            ('-1', errno.EINVAL),
        ],
    )
    def test_a_number_is_what_it_takes(self, answer, text, number):
        assert answer(vf(0, 'current_vgpu_type'), text) == number

    def test_one_that_has_a_type_takes_no_other(self, host, answer):
        host.sysfs.write(vf(0, 'current_vgpu_type'), '1150')
        assert names(host, 0) == []
        assert answer(vf(0, 'current_vgpu_type'), '1150') == errno.EBUSY
        assert answer(vf(0, 'gpu_instance_id'), '1') == errno.EPERM
        assert answer(vf(0, 'current_vgpu_type'), '0') is None
        assert names(host, 0) == ['1150', '1153', '1155']

    def test_all_of_a_card_are_of_one_size(self, host, answer):
        host.sysfs.write(vf(0, 'current_vgpu_type'), '1150')
        assert names(host, 1) == ['1150']
        assert answer(vf(1, 'current_vgpu_type'), '1153') == errno.EINVAL

    def test_it_is_not_for_vfio(self, host, answer):
        part = f'bus/pci/devices/{vf(0, "").split("/")[3]}'
        host.sysfs.write(f'{part}/driver_override', 'vfio-pci')
        host.sysfs.write(f'{part}/driver/unbind', part.rpartition('/')[2])
        assert answer('bus/pci/drivers_probe', part.rpartition('/')[2]) == errno.EINVAL
        assert not host.sysfs.has(f'{part}/driver')

    def test_a_full_card_names_nothing(self, host, answer):
        for number in range(2):
            host.sysfs.write(vf(number, 'current_vgpu_type'), '1153')
        assert names(host, 5) == []
        assert answer(vf(5, 'current_vgpu_type'), '1153') == errno.EINVAL

    def test_nothing_outlives_its_function(self, host):
        host.sysfs.write(vf(0, 'current_vgpu_type'), '1155')
        for count in ('0', '8'):
            host.sysfs.write(f'bus/pci/devices/{CARD}/sriov_numvfs', count)
        assert host.sysfs.read(vf(0, 'current_vgpu_type')) == '0'
        assert '1155' in names(host, 7)


class TestGpuInstances:
    @pytest.fixture(autouse=True)
    def card(self, host):
        host.plug_in('10de:2335', at=CARD, vfs=8)

    def test_one_is_chosen_first_and_taken_once(self, host, answer):
        assert answer(vf(0, 'current_vgpu_type'), '1416') == errno.EIO
        for number in (0, 1):
            host.sysfs.write(vf(number, 'gpu_instance_id'), '7')
        assert answer(vf(0, 'current_vgpu_type'), '1416') is None
        assert answer(vf(1, 'current_vgpu_type'), '1416') == errno.EIO
        assert answer(vf(1, 'gpu_instance_id'), 'seven') == errno.EINVAL

    def test_they_are_named_as_long_as_there_are_some(self, host):
        for number, instance in enumerate(('7', '8', '9')):
            assert '1416' in names(host, 7)
            host.sysfs.write(vf(number, 'gpu_instance_id'), instance)
            host.sysfs.write(vf(number, 'current_vgpu_type'), '1416')
        assert '1416' not in names(host, 7)
