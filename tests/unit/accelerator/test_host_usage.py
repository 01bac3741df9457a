# SPDX-License-Identifier: Apache-2.0
"""Whether the host uses a disk or an interface itself."""

import builtins
import errno
import os

import pytest

from cyborg import objects
from cyborg.accelerator import host_usage, pci
from cyborg.agent import driver_guard

ADDRESS = '0000:c5:00.0'


@pytest.fixture
def disk(host):
    host.plug_in('144d:a80a', at=ADDRESS)
    return pci.Function.at(host.sysfs, ADDRESS)


def test_a_disk_that_nobody_uses_is_free(disk):
    assert [each.name for each in host_usage.disks(disk)] == ['nvme0n1']
    assert host_usage.disk_use(disk) is None


@pytest.mark.parametrize('table', ['proc/self/mountinfo', 'proc/swaps'])
def test_a_table_that_cannot_be_opened_at_present_does_not_free_a_disk(
    host, disk, monkeypatch, table
):
    host.tree.file(table, '')

    def fail(path, *arguments, real=open, **options):
        if str(path).endswith(table):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *arguments, **options)

    monkeypatch.setattr(builtins, 'open', fail)
    with pytest.raises(OSError, match='Too many open files'):
        host_usage.disk_use(disk)


@pytest.mark.parametrize('call', ['open', 'scandir'])
@pytest.mark.parametrize(
    'name, plug_in',
    [
        (
            'nvme_driver',
            lambda host: host.plug_in(
                '144d:a80a', at=ADDRESS, nvme={'namespaces': [{'mounted': True}]}
            ),
        ),
        ('nvidia_gpu_driver', lambda host: host.plug_in('10de:20b5', at=ADDRESS, vfs=2)),
    ],
    ids=['disk', 'gpu'],
)
def test_a_driver_that_lacks_file_descriptors_once_fails(
    host, load, monkeypatch, call, name, plug_in
):
    """Whichever call fails: devices are neither withdrawn nor offered by mistake."""
    plug_in(host)
    guard, module = driver_guard.Guard(load(name), 60), builtins if call == 'open' else os
    calls, victim, real = 0, None, getattr(module, call)

    def fail(path, *arguments, **options):
        nonlocal calls
        if str(path).startswith(str(host.sysfs)):
            calls += 1
            if calls == victim:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *arguments, **options)

    monkeypatch.setattr(module, call, fail)
    assert len(guard.discover()) == 1
    assert calls
    for victim in range(1, calls + 1):
        calls = 0
        found, [state] = driver_guard.discover([guard])
        assert (found, state.status) == ([], objects.DriverStatus.FAILED), victim
        assert 'Too many open files' in state.error


def test_another_disks_use_is_none_of_its_business(host, disk):
    host.plug_in('144d:a80a', at='0000:c7:00.0', nvme={'namespaces': [{'mounted': True}]})
    assert host_usage.disk_use(disk) is None


def test_in_a_container_the_hosts_mounts_count_too(host, disk):
    number = host.sysfs.read('class/block/nvme0n1/dev')
    host.tree.file('proc/1/mountinfo', f'25 1 {number} / / rw - xfs /dev/root rw')
    assert host_usage.disk_use(disk) == 'nvme0n1 is mounted or used for swap'


def test_a_mount_may_name_the_disk_only(host, disk):
    host.tree.file(
        'proc/self/mountinfo', '25 1 0:41 /root / rw shared:1 - btrfs /dev/nvme0n1 rw,subvol=/root'
    )
    assert host_usage.disk_use(disk) == 'nvme0n1 is mounted or used for swap'


def test_a_file_system_over_several_disks_uses_all_of_them(host, disk):
    host.tree.directory('fs/btrfs/7c1f/devices/nvme0n1')
    assert host_usage.disk_use(disk) == 'nvme0n1 is mounted or used for swap'


def test_a_disk_with_several_paths_is_found_where_it_is(host, disk):
    controller = host.tree.real('class/nvme/nvme0')
    head = 'devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1'
    host.tree.remove('class/block/nvme0n1')
    host.tree.remove(f'{controller}/nvme0n1')
    host.tree.file(f'{controller}/nvme0c0n1/dev', '0:0')
    host.tree.link('class/block/nvme0c0n1', f'{controller}/nvme0c0n1')
    host.tree.directory(f'{head}/holders/dm-3')
    host.tree.link('class/block/nvme0n1', head)
    assert host_usage.disk_use(disk) == 'nvme0n1 is part of a volume'


def test_a_table_of_mounts_may_be_long(host, disk):
    number = host.sysfs.read('class/block/nvme0n1/dev')
    lines = [
        f'{each} 1 0:{each} / /run/containers/{"x" * 200}/{each} rw - overlay overlay rw'
        for each in range(2000)
    ]
    host.tree.file(
        'proc/self/mountinfo',
        '\n'.join([*lines, f'25 1 {number} / /data rw - ext4 /dev/mapper/x rw']),
    )
    assert host_usage.disk_use(disk) is not None


@pytest.mark.parametrize('noise', ['', '\n\n', 'a', 'a - ', ' - - -', '\0' * 40, 'a b c d e'])
def test_noise_in_the_tables_is_passed_over(host, disk, noise):
    host.tree.file('proc/self/mountinfo', noise)
    host.tree.file('proc/swaps', noise)
    assert host_usage.disk_use(disk) is None


@pytest.mark.parametrize(('is_up', 'use'), [(True, 'ens1 is up'), (False, None)])
def test_an_interface_is_used_when_it_is_up(host, is_up, use):
    host.plug_in('8086:1592', at=ADDRESS, net={'name': 'ens1', 'up': is_up})
    assert host_usage.interface_use(pci.Function.at(host.sysfs, ADDRESS)) == use
