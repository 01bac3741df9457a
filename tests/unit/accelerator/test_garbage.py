# SPDX-License-Identifier: Apache-2.0
"""Discovery survives any content of sysfs, and a broken card does not affect others."""

import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from cyborg import conf as options
from cyborg.accelerator import driver
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim import Host

DRIVERS = [
    'nvidia_gpu_driver',
    'amd_gpu_driver',
    'intel_gpu_driver',
    'huawei_ascend_driver',
    'intel_qat_driver',
    'intel_fpga_driver',
    'xilinx_fpga_driver',
    'inspur_fpga_driver',
    'intel_nic_driver',
    'inspur_nvme_ssd_driver',
    'nvme_driver',
    'intel_dsa_driver',
    'time_sync_driver',
    'pci_driver',
]
#: A card of each family, and of each way in which one can be shared.
CARDS = [
    {'model': '10de:1eb8', 'at': '0000:3b:00.0'},
    {'model': '10de:20b5', 'at': '0000:af:00.0'},
    {'model': '10de:2335', 'at': '0000:10:00.0', 'vfs': 4},
    {'model': '10de:2331', 'at': '0000:12:00.0'},
    {'model': '1002:74a1', 'at': '0000:14:00.0'},
    {'model': '1002:74a0', 'at': '0000:16:00.0'},
    {'model': '8086:56c0', 'at': '0000:18:00.0'},
    {'model': '19e5:d802', 'at': '0000:1a:00.0'},
    {'model': '8086:4940', 'at': '0000:1c:00.0'},
    {'model': '8086:bcce', 'at': '0000:1e:00.0'},
    {'model': '8086:09c4', 'at': '0000:20:00.0'},
    {'model': '8086:0b2b', 'at': '0000:32:00.0'},
    {'model': '8086:37c8', 'at': '0000:34:00.0'},
    {'model': '10ee:5000', 'at': '0000:22:00.0'},
    {'model': '10ee:5001', 'at': '0000:22:00.1'},
    {'model': '1bd4:0911', 'at': '0000:24:00.0'},
    {'model': '8086:1572', 'at': '0000:26:00.0', 'net': {'name': 'ens1'}},
    {'model': '1bd4:1001', 'at': '0000:28:00.0'},
    {'model': '144d:a80a', 'at': '0000:2a:00.0', 'nvme': {'namespaces': [{'mounted': True}]}},
    {'model': '8086:0b25', 'at': '0000:2c:00.0'},
    {'model': '1d9b:0400', 'at': '0000:2e:00.0'},
    {'model': '8086:0cfe', 'at': '0000:36:00.0'},
    {'model': '144d:a80a', 'at': '0000:38:00.0', 'nvme': {'namespaces': [{'partitions': 1}]}},
    {'model': '1234:5678', 'at': '0000:30:00.0'},
]
CONF = """
[gpu_devices]
enabled_vgpu_types = nvidia-222, nvidia-468, 1424
[vgpu_nvidia-222]
device_addresses = 0000:3b:00.0
[vgpu_nvidia-468]
device_addresses = 0000:af:00.0
[vgpu_1424]
device_addresses = 0000:10:00.0
[nic_devices]
enabled_nic_types = x710_static
[x710_static]
physical_device_mappings = physnet1:0000:26:00.0|ens1
[pci]
passthrough_whitelist = {"vendor_id": "1234"}
"""


class Wreck:
    """A described host whose files can be spoilt, and made good again."""

    def __init__(self, path):
        path = path.resolve()
        self.root = path / 'sys'
        self.stash = path / 'stash'
        Host.described(self.root, {'cards': CARDS})
        (path / 'cyborg.conf').write_text(CONF)
        conf = cfg.ConfigOpts()
        options.register(conf)
        conf(['--config-file', str(path / 'cyborg.conf')], project='cyborg', default_config_dirs=[])
        self.drivers = driver.load(DRIVERS, conf, Sysfs(self.root))
        self.places = sorted(
            str(each.relative_to(self.root))
            for pattern in (
                'devices/*/*/*',
                'devices/*/*/*/**/*',
                'bus/pci/devices/*',
                'class/block/*',
                'kernel/iommu_groups/*/devices/*',
                'proc/**/*',
            )
            for each in self.root.glob(pattern)
            if os.path.realpath(each.parent) == str(each.parent)
        )  # not seen through a link
        self.sound = self.discover()
        assert len(self.sound) == len(CARDS) - 1  # one has two functions

    def discover(self):
        return {
            device.key: device.obj_to_primitive()
            for each in self.drivers
            for device in each.discover()
        }

    def spoil(self, damages):
        self.stash.mkdir()
        moved = []
        for number, (place, kind, noise) in enumerate(damages):
            path = self.root / place
            if os.path.lexists(path) and _stays_inside(path, self.root):
                path.rename(self.stash / str(number))
                moved.append((path, number))
                _replace(path, kind, noise)
        return moved

    def mend(self, moved):
        for path, number in reversed(moved):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            (self.stash / str(number)).rename(path)
        self.stash.rmdir()


def _stays_inside(path, root):
    """A file below a replaced link might be anywhere."""
    return Path(os.path.realpath(path.parent)).is_relative_to(root)


def _replace(path, kind, noise):
    if kind == 'noise':
        path.write_bytes(noise)
    elif kind == 'directory':
        path.mkdir()
    elif kind == 'dangling link':
        path.symlink_to('nowhere')
    elif kind == 'circle':
        path.symlink_to(path.name)


@pytest.fixture(scope='module')
def wreck(tmp_path_factory):
    return Wreck(tmp_path_factory.mktemp('wreck'))


@given(data=st.data())
def test_a_spoilt_host_is_looked_at_without_an_error(wreck, data):
    damages = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(wreck.places),
                st.sampled_from(['gone', 'noise', 'directory', 'dangling link', 'circle']),
                st.one_of(
                    st.binary(max_size=40),
                    st.sampled_from(
                        [
                            b'',
                            b'0x10de\n',
                            b'-1\n',
                            b'99999999999999999999\n',
                            b'up',
                            b'max_instance=7',
                            b'max_instance=999999999',
                            b'1424 : NVIDIA H200X-35C',
                            b'1424',
                            b'TOTAL_ERR_FATAL 1',
                            b'd8424dc4a4a3c413f89e433683f9040b',
                        ]
                    ),
                ),
            ),
            min_size=1,
            max_size=6,
        )
    )
    moved = wreck.spoil(damages)
    try:
        found = wreck.discover()
    finally:
        wreck.mend(moved)
    buses = {
        part.split(':')[1]
        for place, *_ in damages
        for part in place.split('/')
        if part.count(':') == 2
    }
    is_local = all('devices/pci' in place or 'bus/pci' in place for place, *_ in damages)
    for key, device in wreck.sound.items() if is_local else ():
        if key.split(':')[1] not in buses:
            assert found[key] == device


def test_a_host_that_was_mended_looks_as_before(wreck):
    moved = wreck.spoil([(place, 'gone', b'') for place in wreck.places[:50]])
    wreck.mend(moved)
    assert wreck.discover() == wreck.sound


def test_looking_while_cards_come_and_go_ends_well(host, conf):
    looks = driver.load(DRIVERS, conf, host.sysfs)
    done, failures = threading.Event(), []

    def look():
        while not done.is_set():
            try:
                for each in looks:
                    for device in each.discover():
                        device.obj_to_primitive()
            except Exception as error:
                failures.append(error)
                return

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(5):
        host.plug_in('10de:20b5', at='0000:af:00.0', vfs=4)
        host.plug_in('8086:bcce', at='0000:5e:00.0')
        host.plug_in('1d9b:0400', at='0000:85:00.0')
        host.plug_in('10de:26b9', at='0000:41:00.0', vfs=4)
        host.plug_in('10ee:5000', at='0000:22:00.0')
        host.plug_in('10ee:5001', at='0000:22:00.1')
        host.plug_in('144d:a80a', at='0000:2a:00.0')
        host.plug_in('8086:0b25', at='0000:2c:00.0')
        for address in list(host.cards):
            host.pull_out(address)
    done.set()
    watcher.join()
    assert failures == []
