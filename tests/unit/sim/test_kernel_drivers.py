# SPDX-License-Identifier: Apache-2.0
"""Simulated disks, network cards and DSA."""

import errno

import pytest

CARD = '0000:6b:00.0'
P = f'bus/pci/devices/{CARD}'


def unbind(host):
    host.sysfs.write(f'{P}/driver/unbind', CARD)


class TestDisks:
    def test_one_is_listed_with_its_parts_as_long_as_its_driver_has_it(self, host, events):
        host.plug_in('144d:a80a', at=CARD, nvme={'namespaces': [{'partitions': 2}, {}]})
        assert [each.name for each in (host.sysfs / 'class/block').children()] == [
            'nvme0n1',
            'nvme0n1p1',
            'nvme0n1p2',
            'nvme0n2',
        ]
        assert host.sysfs.read('class/nvme/nvme0/state') == 'live'
        assert ('add', 'nvme', 'nvme0') in events
        unbind(host)
        assert (host.sysfs / 'class/block').children() == []
        assert ('remove', 'nvme', 'nvme0') in events

    def test_mounts_and_swap_are_in_the_tables(self, host):
        host.plug_in(
            '144d:a80a',
            at=CARD,
            nvme={'namespaces': [{'mounted': True}, {'partitions': 1, 'swap': True}]},
        )
        device = host.sysfs.read('class/block/nvme0n1/dev')
        assert f' {device} / /srv ' in host.sysfs.proc.read('self/mountinfo')
        assert '/dev/nvme0n2p1 partition' in host.sysfs.proc.read('swaps')
        unbind(host)
        assert host.sysfs.proc.read('self/mountinfo') == ''
        assert 'nvme' not in host.sysfs.proc.read('swaps')

    def test_a_reboot_counts_from_the_beginning(self, host):
        host.plug_in('144d:a80a', at=CARD)
        unbind(host)
        host.reboot()
        assert host.sysfs.has('class/nvme/nvme0')


class TestNetworkCards:
    def test_interfaces_are_named_after_their_place(self, host):
        host.plug_in('8086:1572', at=CARD, vfs=1)
        assert [each.name for each in (host.sysfs / 'class/net').children()] == [
            'enp107s0f0',
            'enp107s2f0',
        ]
        assert host.sysfs.link('class/net/enp107s0f0/device').name == CARD

    def test_one_may_be_up(self, host):
        host.plug_in('8086:1572', at=CARD, vfs=0, net={'name': 'uplink', 'up': True})
        assert host.sysfs.read('class/net/uplink/operstate') == 'up'
        unbind(host)
        assert (host.sysfs / 'class/net').children() == []


class TestDsa:
    @pytest.fixture(autouse=True)
    def cards(self, host):
        host.plug_in('8086:0b25', at=CARD)
        host.plug_in('8086:0cfe', at='0000:6d:00.0')

    def test_both_kinds_are_counted_together(self, host):
        names = [each.name for each in (host.sysfs / 'bus/dsa/devices').children()]
        assert {'dsa0', 'iax1', 'wq0.0', 'wq1.7'} <= set(names)

    def test_a_queue_is_enabled_after_its_card(self, host, answer):
        assert answer('bus/dsa/drivers/user/bind', 'wq0.0') == errno.EPERM
        assert answer('bus/dsa/drivers/user/bind', 'dsa0') == errno.ENODEV
        assert answer('bus/dsa/drivers/idxd/bind', 'wq0.0') == errno.ENODEV
        assert answer('bus/dsa/drivers/idxd/bind', 'dsa9') == errno.ENODEV
        assert answer('bus/dsa/drivers/idxd/bind', 'dsa0') is None
        assert answer('bus/dsa/drivers/user/bind', 'wq0.0') is None
        assert host.sysfs.read('bus/dsa/devices/wq0.0/state') == 'enabled'

    def test_they_go_with_their_driver(self, host):
        unbind(host)
        names = [each.name for each in (host.sysfs / 'bus/dsa/devices').children()]
        assert not [name for name in names if name.startswith(('dsa0', 'wq0'))]


def test_a_drivers_files_go_with_it(host):
    host.plug_in('10ee:5001', at=CARD)
    assert host.sysfs.read(f'{P}/icap.u.0/clock_freqs') == '300\n500\n0'
    unbind(host)
    assert not host.sysfs.has(f'{P}/icap.u.0')
    assert not host.sysfs.has(f'{P}/xclbinuuid')
