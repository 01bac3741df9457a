# SPDX-License-Identifier: Apache-2.0
"""Drivers find the same on a recorded host as on the original."""

import errno
import itertools
import json
import os
import uuid

import pytest
import stevedore
from oslo_config import cfg

from cyborg import conf as options
from cyborg import errors, objects
from cyborg.accelerator import driver, pci
from cyborg.sim import Host, catalogue, recorder
from cyborg.sim.conformance.testbed import comparable

T4, A100, QAT = '0000:3b:00.0', '0000:af:00.0', '0000:6b:00.0'
MDEV = str(uuid.UUID(int=7))
CONF = f"""
[gpu_devices]
enabled_vgpu_types = nvidia-222, nvidia-468
[vgpu_nvidia-222]
device_addresses = {T4}
[vgpu_nvidia-468]
device_addresses = {A100}
"""


@pytest.fixture
def load(tmp_path):
    """All drivers of ours, for a host."""
    path = tmp_path / 'cyborg.conf'
    path.write_text(CONF)
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(['--config-file', str(path)], project='cyborg', default_config_dirs=[])
    names = sorted(stevedore.ExtensionManager(driver.NAMESPACE).entry_points_names())
    return lambda host: driver.load(names, conf, host.sysfs)


@pytest.fixture
def discover(load):
    def discover(host):
        return {
            (each.name, device.key): comparable(device)
            for each in load(host)
            for device in each.discover()
        }

    return discover


@pytest.fixture
def again(load, tmp_path):
    """The host that was recorded of another, by way of a file."""

    def again(host, **how):
        facts = recorder.record(host.sysfs, load(host), **how)
        return Host.described(tmp_path / 'again', json.loads(json.dumps(facts)))

    return again


@pytest.mark.parametrize('model', sorted(catalogue.models()))
def test_any_card_looks_the_same(host, discover, again, model):
    host.plug_in(model, at=A100, numa_node=1)
    expected = discover(host)
    assert discover(again(host, with_serials=True)) == expected


def test_a_host_in_use_looks_the_same(host, discover, again):
    host.plug_in('10de:1eb8', at=T4)
    host.plug_in('10de:20b5', at=A100)
    host.plug_in('8086:4940', at=QAT, vfs=2, iommu=False)
    host.sysfs.write(f'bus/pci/devices/{T4}/mdev_supported_types/nvidia-222/create', MDEV)
    part = pci.Function.at(host.sysfs, '0000:af:00.4')
    part.write('driver_override', 'vfio-pci')
    (part / 'driver').write('unbind', part.address)
    host.sysfs.write('bus/pci/drivers_probe', part.address)
    copy = again(host)
    assert discover(copy) == discover(host)
    assert pci.Function.at(copy.sysfs, '0000:af:00.4').driver == 'vfio-pci'
    assert (
        pci.Function.at(copy.sysfs, '0000:af:00.5').iommu_group
        == pci.Function.at(host.sysfs, '0000:af:00.5').iommu_group
    )
    assert copy.sysfs.has(f'bus/mdev/devices/{MDEV}')


@pytest.mark.parametrize(
    'use', [{'mounted': True}, {'swap': True}, {'partitions': 2}, {'holders': ['dm-0']}], ids=str
)
def test_a_disk_in_use_is_in_use_again(host, discover, again, use):
    host.plug_in('144d:a80a', at=QAT, nvme={'namespaces': [use]})
    expected = discover(host)
    assert 'is used by the host' in str(expected)
    assert discover(again(host, with_serials=True)) == expected


def test_of_mounts_only_those_of_such_disks_are_told(host, load, discover, again):
    host.plug_in('144d:a80a', at=QAT)
    pool = '0f6e1d52-5a6e-4c3b-9f27-7d1f0e8a4b11'
    host.tree.directory(f'fs/btrfs/{pool}/devices/nvme0n1')
    with open(host.sysfs.path / 'proc/self/mountinfo', 'a') as table:
        table.write('30 1 0:77 / /srv/secret rw - nfs files:/secret rw\n')
    text = json.dumps(recorder.record(host.sysfs, load(host)))
    assert 'secret' not in text and pool not in text
    assert 'is used by the host' in str(discover(again(host)))


def test_what_was_recorded_behaves_as_well(host, again, load):
    host.plug_in('10de:1eb8', at=T4)
    copy = again(host)
    [gpus] = [each for each in load(copy) if each.name == 'nvidia_gpu_driver']
    [device] = gpus.discover()
    handle = device.deployables[0].attach_handles[0]
    stored = objects.AttachHandle(
        uuid=MDEV, key=handle.key, type=handle.type, info=handle.info, is_host_prepared=True
    )
    gpus.attach(stored, None)
    assert copy.sysfs.has(f'bus/mdev/devices/{MDEV}')
    gpus.detach(stored)
    assert not copy.sysfs.has(f'bus/mdev/devices/{MDEV}')


def test_only_what_drivers_look_at_is_there(host, load):
    host.plug_in('1d9b:0400', at=T4, attributes={'secret': 'password', 'vpd': 'abcdef'})
    host.sysfs.path.joinpath('firmware').mkdir()
    host.sysfs.path.joinpath('firmware/key').write_text('password')
    text = json.dumps(recorder.record(host.sysfs, load(host)))
    assert 'password' not in text
    assert 'abcdef' not in text
    assert 'max_adjustment' not in text  # nobody reads it


class TestAHostThatChangesMeanwhile:
    @pytest.fixture
    def pull_out(self, host, monkeypatch):
        """Have a card go just before a function of the recorder is called."""
        host.plug_in('10de:1eb8', at=T4)
        host.plug_in('10de:20b5', at=A100)

        def pull_out(name):
            function, left = getattr(recorder, name), [A100]

            def act(*arguments):
                if left:
                    host.pull_out(left.pop())
                return function(*arguments)

            monkeypatch.setattr(recorder, name, act)

        return pull_out

    @pytest.mark.parametrize('name', ['_card', '_identity', '_sriov', '_differences', '_mounts'])
    def test_it_is_recorded_as_it_is_then(self, host, load, pull_out, name):
        pull_out(name)
        found = recorder.record(host.sysfs, load(host))
        assert [card['at'] for card in found['cards']] == [T4]
        assert found == recorder.record(host.sysfs, load(host))

    def test_a_link_that_goes_as_it_is_read_is_no_failure(self, host, load, monkeypatch):
        host.plug_in('10de:1eb8', at=T4)

        def gone(path, **options):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

        accesses = recorder.Accesses(host.sysfs.path)
        monkeypatch.setattr(os.path, 'realpath', gone)
        accesses.note(host.sysfs.path / f'bus/pci/devices/{T4}/driver', True)
        assert accesses.state(f'bus/pci/devices/{T4}/driver')

    def test_one_that_never_rests_is_told(self, host, load, monkeypatch):
        host.plug_in('10de:1eb8', at=T4)
        mounts, numbers = recorder._mounts, itertools.count(0x40)

        def plug_in(*arguments):
            host.plug_in('1234:5678', at=f'0000:{next(numbers):02x}:00.0')
            return mounts(*arguments)

        monkeypatch.setattr(recorder, '_mounts', plug_in)
        with pytest.raises(errors.ConfigError, match='faster than it can be recorded'):
            recorder.record(host.sysfs, load(host))


class TestSerialNumbers:
    @pytest.fixture
    def cards(self, host):
        for number, serial in enumerate(('1a:2b:3c:4d:5e:6f', 'aa:bb:cc:dd:ee:ff')):
            host.plug_in(
                '1d9b:0400', at=f'0000:{0x3B + 4 * number:02x}:00.0', timecard={'serial': serial}
            )

    def test_they_are_replaced_by_others_of_the_same_shape(self, host, cards, load, again):
        facts = recorder.record(host.sysfs, load(host))
        assert '1a:2b:3c' not in json.dumps(facts)
        assert 'aa:bb:cc' not in json.dumps(facts)
        serials = [
            device.vendor_board_info['serial']
            for each in load(again(host))
            if each.name == 'time_sync_driver'
            for device in each.discover()
        ]
        assert serials == ['00:00:00:00:00:01', '00:00:00:00:00:02']

    def test_they_stay_if_they_are_asked_for(self, host, cards, load):
        facts = recorder.record(host.sysfs, load(host), with_serials=True)
        assert '1a:2b:3c:4d:5e:6f' in json.dumps(facts)


def test_a_driver_that_fails_does_not_spoil_the_record_of_others(
    host, load, discover, again, monkeypatch, caplog
):
    host.plug_in('10de:1eb8', at=T4)
    expected = discover(host)

    def fail(self):
        raise RuntimeError('no tool')

    [qat] = [each for each in load(host) if each.name == 'intel_qat_driver']
    with monkeypatch.context() as patch:
        patch.setattr(type(qat), 'discover', fail)
        copy = again(host)
    assert discover(copy) == expected
    assert 'intel_qat_driver failed to discover devices: no tool' in caplog.text
