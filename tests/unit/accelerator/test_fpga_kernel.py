# SPDX-License-Identifier: Apache-2.0
"""Images that are loaded through the kernel."""

import ctypes
import errno
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import pytest

from cyborg.accelerator import fpga_kernel
from cyborg.cmd import fpga_load
from tests.fixtures.fpga import gbs

MIB = 1024 * 1024
SYNC = bytes.fromhex('aa995566')
#: loads an image and is killed while it writes to the manager
KILLED = """
import os, pathlib, signal, sys
from cyborg.accelerator import fpga_kernel
image, firmware, managers = map(pathlib.Path, sys.argv[1:])
def write(path, text):
    os.kill(os.getpid(), signal.SIGKILL)
fpga_kernel.load_manager('fpga0', 'full', image, firmware, managers, write)
"""
#: loads an image as cyborg-fpga-load does; the manager does not end
HANGING = """
import pathlib, sys, time
from cyborg.accelerator import fpga_kernel
image, firmware, managers = map(pathlib.Path, sys.argv[1:])
def write(path, text):
    if path.name == 'firmware':
        print(text, flush=True)
        time.sleep(600)
fpga_kernel.load_manager(
    'fpga0', 'full', image, firmware, managers, write, fpga_kernel.removed_if_killed
)
"""
#: loads an image as cyborg-fpga-load does, and a small file system is where the kernel looks for it
FULL = """
import os, pathlib, subprocess, sys
from cyborg.accelerator import fpga_kernel
image, firmware, managers = map(pathlib.Path, sys.argv[1:])
subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', firmware], check=True)
(firmware / 'vendor').touch()
def write(path, text):
    print('written:', path)
try:
    fpga_kernel.load_manager(
        'fpga0', 'full', image, firmware, managers, write, fpga_kernel.removed_if_killed
    )
except (fpga_kernel.Failed, OSError) as error:
    print(error)
print(os.listdir(firmware))
"""
ENTER = ['unshare', '--user', '--map-root-user', '--mount']


def own_memory():
    """Bytes of memory that this process has and that are not pages of files."""
    status = pathlib.Path('/proc/self/status').read_text()
    return 1024 * int(re.search('RssAnon:\\s+([0-9]+) kB', status)[1])


class TestPort:
    """The kernel's own driver of Intel's cards is asked through its device."""

    @pytest.fixture
    def device(self, tmp_path):
        device = tmp_path / 'dfl-fme.0'
        device.touch()
        return str(device)

    @pytest.fixture
    def image(self, tmp_path):
        image = tmp_path / 'image'
        image.write_bytes(gbs())
        return image

    def test_it_gets_the_bits_without_their_description(self, device, image):
        asked = []

        def ioctl(file, request, argument):
            size, flags, port, length, address = struct.unpack('=IIIIQ', argument)
            asked.append((request, size, flags, port, ctypes.string_at(address, length)))

        fpga_kernel.load_port(device, '3', image, ioctl)
        assert asked == [(0xB680, 24, 0, 3, b'bits' * 1000)]

    def test_its_memory_does_not_depend_on_the_size(self, device, image):
        os.truncate(image, 200 * MIB)
        held = []
        before = own_memory()
        fpga_kernel.load_port(device, '1', image, lambda *arguments: held.append(own_memory()))
        assert held[0] - before < 20 * MIB

    def test_what_the_kernel_has_against_it_rises(self, device, image):
        def ioctl(file, request, argument):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with pytest.raises(OSError, match='Input/output error'):
            fpga_kernel.load_port(device, '0', image, ioctl)

    @pytest.mark.parametrize(
        ('content', 'sentence'),
        [
            (b'', 'is not a GBS'),
            (b'noise', 'is not a GBS'),
            (gbs()[:-4000], 'has a description but no bits'),
            (gbs()[:-4100], 'has a description but no bits'),
        ],
    )
    def test_what_is_no_image_never_gets_there(self, device, image, content, sentence):
        image.write_bytes(content)
        with pytest.raises(fpga_kernel.Failed, match=sentence):
            fpga_kernel.load_port(device, '0', image, pytest.fail)


class TestManager:
    """A simulated card with a manager that loads files."""

    @pytest.fixture
    def manager(self, host):
        host.plug_in('1bd4:0911', at='0000:5e:00.0', driver='xilinx-pr', fpga_manager={})
        return host.sysfs / 'class/fpga_manager/fpga0'

    @pytest.fixture
    def load(self, host, tmp_path):
        def load(content=SYNC + b'bits', extent='full', name='fpga0'):
            (tmp_path / 'image').write_bytes(content)
            (tmp_path / 'firmware').mkdir(exist_ok=True)
            host.tree.path('lib').mkdir(exist_ok=True)
            if not host.tree.path('lib/firmware').exists():
                host.tree.path('lib/firmware').symlink_to(tmp_path / 'firmware')
            fpga_kernel.load_manager(
                name,
                extent,
                tmp_path / 'image',
                tmp_path / 'firmware',
                host.sysfs.path / 'class/fpga_manager',
                host.sysfs.writer,
            )

        return load

    @pytest.mark.parametrize(('extent', 'flags'), [('full', '0'), ('partial', '1')])
    def test_it_loads_the_file_and_leaves_nothing(self, manager, load, tmp_path, extent, flags):
        load(extent=extent)
        assert (manager.read('state'), manager.read('flags')) == ('operating', flags)
        assert list((tmp_path / 'firmware').iterdir()) == []

    def test_what_it_does_not_take_leaves_its_state(self, manager, load, tmp_path):
        with pytest.raises(fpga_kernel.Failed, match='timed out.*state is "write error"'):
            load(b'noise')
        assert list((tmp_path / 'firmware').iterdir()) == []

    def test_what_a_killed_command_left_is_removed_by_the_next(self, host, manager, load, tmp_path):
        load()
        firmware = tmp_path / 'firmware'
        paths = (tmp_path / 'image', firmware, host.sysfs.path / 'class/fpga_manager')
        for _ in range(2):
            ended = subprocess.run([sys.executable, '-c', KILLED, *map(str, paths)], check=False)
            assert ended.returncode == -signal.SIGKILL
            assert len(list(firmware.iterdir())) == 1
        others = {firmware / 'cyborg-fpga1-x', firmware / 'cyborg-fpga', firmware / 'vendor'}
        for other in others:
            other.touch()
        load()
        assert manager.read('state') == 'operating'
        assert set(firmware.iterdir()) == others

    @pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
    def test_a_command_that_is_killed_with_its_group_leaves_nothing(
        self, host, manager, load, tmp_path, number
    ):
        load()
        firmware = tmp_path / 'firmware'
        paths = (tmp_path / 'image', firmware, host.sysfs.path / 'class/fpga_manager')
        with subprocess.Popen(
            [sys.executable, '-c', HANGING, *map(str, paths)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as command:
            copy = firmware / command.stdout.readline().strip()
            assert copy.read_bytes() == (tmp_path / 'image').read_bytes()
            os.killpg(command.pid, number)
            assert command.stdout.read() == ''  # nobody else has its output open
        assert command.returncode == -number
        deadline = time.monotonic() + 60
        while list(firmware.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def test_a_full_directory_is_named_and_nothing_is_left_in_it(
        self, host, manager, load, tmp_path
    ):
        if (
            not shutil.which('unshare')
            or subprocess.run([*ENTER, 'true'], capture_output=True).returncode
        ):
            pytest.skip('no namespace for a small file system')
        load()
        (tmp_path / 'image').write_bytes(SYNC + b'x' * 3 * MIB)
        firmware = tmp_path / 'firmware'
        paths = (tmp_path / 'image', firmware, host.sysfs.path / 'class/fpga_manager')
        ran = subprocess.run(
            [*ENTER, sys.executable, '-c', FULL, *map(str, paths)],
            check=True,
            capture_output=True,
            text=True,
        )
        why, left = ran.stdout.splitlines()  # the manager was told nothing
        assert 'No space left on device' in why and str(firmware) in why
        assert left == "['vendor']"

    def test_the_guard_of_a_command_that_ends_is_gone(self, tmp_path):
        copy = tmp_path / 'copy'
        guarded = (
            'import os, pathlib, sys; from cyborg.accelerator import fpga_kernel\n'
            'with fpga_kernel.removed_if_killed(pathlib.Path(sys.argv[1])) as _:\n'
            '    pathlib.Path(sys.argv[1]).touch()\n'
            'try: os.waitpid(-1, 0)\n'
            'except ChildProcessError: print(os.listdir("/proc/self/fd"))\n'
        )
        ran = subprocess.run(
            [sys.executable, '-c', guarded, str(copy)], check=True, capture_output=True, text=True
        )
        assert (len(ran.stdout.split(',')), copy.exists()) == (4, False), ran

    def test_a_mainline_kernel_has_no_file_for_it(self, host, load):
        host.plug_in('1bd4:0911', at='0000:5e:00.0', driver='x', fpga_manager={'firmware': False})
        with pytest.raises(fpga_kernel.Failed, match='overlays of the device tree only'):
            load()


@pytest.mark.parametrize(
    'words',
    [
        [],
        ['port'],
        ['port', '/dev/sda', '0', '/image'],
        ['port', '/dev/dfl-fme.0', 'x', '/image'],
        ['manager', '../fpga0', 'full', '/image'],
        ['manager', 'fpga0', 'half', '/image'],
        ['manager', 'fpga0', 'full', '/image', 'more'],
    ],
)
def test_the_command_says_how_it_is_called(monkeypatch, words):
    monkeypatch.setattr(sys, 'argv', ['cyborg-fpga-load', *words])
    with pytest.raises(SystemExit, match='Usage: cyborg-fpga-load'):
        fpga_load.main()


def test_the_command_says_what_failed(monkeypatch, tmp_path):
    image = tmp_path / 'image'
    image.write_bytes(b'noise')
    monkeypatch.setattr(
        sys, 'argv', ['cyborg-fpga-load', 'port', '/dev/dfl-fme.999', '0', str(image)]
    )
    with pytest.raises(SystemExit, match='is not a GBS'):
        fpga_load.main()
