# SPDX-License-Identifier: Apache-2.0
"""Simulated mediated devices answer as those of a real kernel."""

import errno

import pytest

T4, A100 = '0000:3b:00.0', '0000:af:00.0'
U1, U2 = '91ac1606-427e-44bb-8233-f4ff4bf3d241', '91ac1606-427e-44bb-8233-f4ff4bf3d242'
TYPES = f'bus/pci/devices/{T4}/mdev_supported_types'


def vf(number, kind, name):
    return f'bus/pci/devices/{A100[:-1]}{4 + number}/mdev_supported_types/nvidia-{kind}/{name}'


@pytest.fixture
def t4(host):
    host.plug_in('10de:1eb8', at=T4)


@pytest.fixture
def a100(host):
    host.plug_in('10de:20b5', at=A100, vfs=4)


class TestOnACard:
    def test_a_device_is_there_when_the_write_returns(self, host, t4):
        host.sysfs.write(f'{TYPES}/nvidia-223/create', U1 + '\n')
        device = host.sysfs / f'bus/mdev/devices/{U1}'
        assert device.link('mdev_type').name == 'nvidia-223'
        assert device.link('subsystem').name == 'mdev'
        assert host.sysfs.link(f'{TYPES}/nvidia-223/devices/{U1}').path == device.path.resolve()
        assert host.sysfs.has(f'class/mdev_bus/{T4}/{U1}')

    @pytest.mark.parametrize(
        ('text', 'number'),
        [
            ('\n', errno.EINVAL),
            ('junk', errno.EINVAL),
            (U1[:-1], errno.EINVAL),
            ('z' * 36, errno.EINVAL),
            (U1.replace('-', ''), errno.EINVAL),
            (U1, None),
        ],
    )
    def test_a_uuid_is_what_it_takes(self, t4, answer, text, number):
        assert answer(f'{TYPES}/nvidia-223/create', text) == number

    def test_a_uuid_is_used_once_on_a_host(self, host, t4, a100, answer):
        assert answer(f'{TYPES}/nvidia-223/create', U1) is None
        assert answer(f'{TYPES}/nvidia-223/create', U1) == errno.EEXIST
        assert answer(vf(0, 468, 'create'), U1) == errno.EEXIST

    def test_a_card_holds_one_type_at_a_time(self, host, t4, answer):
        assert host.sysfs.read(f'{TYPES}/nvidia-222/available_instances') == '16'
        host.sysfs.write(f'{TYPES}/nvidia-223/create', U1)
        assert host.sysfs.read(f'{TYPES}/nvidia-223/available_instances') == '7'
        assert host.sysfs.read(f'{TYPES}/nvidia-222/available_instances') == '0'
        assert answer(f'{TYPES}/nvidia-222/create', U2) == errno.ENOSPC
        host.sysfs.write(f'bus/mdev/devices/{U1}/remove', '1')
        assert host.sysfs.read(f'{TYPES}/nvidia-222/available_instances') == '16'

    def test_a_failed_attempt_is_told_too(self, host, t4, events, answer):
        host.sysfs.write(f'{TYPES}/nvidia-234/create', U1)
        assert events == [('add', 'mdev', U1), ('bind', 'mdev', U1)]
        events.clear()
        assert answer(f'{TYPES}/nvidia-234/create', U2) == errno.ENOSPC
        assert events == [('add', 'mdev', U2), ('remove', 'mdev', U2)]

    @pytest.mark.parametrize(
        ('text', 'number', 'stays'),
        [('0', None, True), ('no', errno.EINVAL, True), ('1', None, False), ('7', None, False)],
    )
    def test_removing_takes_a_number_but_zero(self, host, t4, answer, text, number, stays):
        host.sysfs.write(f'{TYPES}/nvidia-223/create', U1)
        assert answer(f'bus/mdev/devices/{U1}/remove', text) == number
        assert host.sysfs.has(f'bus/mdev/devices/{U1}') is stays

    def test_all_go_with_the_card(self, host, t4, events):
        host.sysfs.write(f'{TYPES}/nvidia-223/create', U1)
        host.pull_out(T4)
        assert (host.sysfs / 'bus/mdev/devices').children() == []
        assert (host.sysfs / 'class/mdev_bus').children() == []
        assert ('remove', 'mdev', U1) in events


class TestOnVirtualFunctions:
    def test_each_holds_one(self, host, a100, answer):
        assert answer(vf(0, 468, 'create'), U1) is None
        assert host.sysfs.read(vf(0, 468, 'available_instances')) == '0'
        assert answer(vf(0, 468, 'create'), U2) == errno.ENOSPC
        assert answer(vf(1, 468, 'create'), U2) is None

    def test_a_full_card_is_full_on_all_of_them(self, host, a100):
        host.sysfs.write(vf(0, 472, 'create'), U1)
        assert [host.sysfs.read(vf(number, 472, 'available_instances')) for number in range(4)] == [
            '0'
        ] * 4

    def test_they_do_not_outlive_their_function(self, host, a100):
        host.sysfs.write(vf(0, 468, 'create'), U1)
        host.sysfs.write(f'bus/pci/devices/{A100}/sriov_numvfs', '0')
        assert (host.sysfs / 'bus/mdev/devices').children() == []
        host.sysfs.write(f'bus/pci/devices/{A100}/sriov_numvfs', '4')
        assert host.sysfs.read(vf(0, 468, 'available_instances')) == '1'
