# SPDX-License-Identifier: Apache-2.0
"""Loads an image into an FPGA through the kernel, where no tool of the maker does.

``cyborg-fpga-load port /dev/dfl-fme.0 1 image.gbs`` loads a GBS into a region of a card with the
kernel's own driver (DFL). ``cyborg-fpga-load manager fpga0 full image.bin`` has the kernel's FPGA
manager load a file, where that has the attribute ``firmware``. The agent runs it.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from cyborg.accelerator import fpga_images, sysfs

#: DFL_FPGA_FME_PORT_PR of linux/fpga-dfl.h, and its argument: size, flags, port, length, address
PORT_PR = 0xb680
PORT_PR_ARGUMENT = struct.Struct('=IIIIQ')
MANAGERS = Path('/sys/class/fpga_manager')
#: where the kernel looks for what it is told to load
FIRMWARE = Path('/lib/firmware')
OPERATING = 'operating'
FLAGS = {'full': '0', 'partial': '1'}

Ioctl = Callable[[int, int, bytes], object]


class Failed(Exception):
    """In a sentence for the operator."""


def load_port(device: str, port: str, image: Path, ioctl: Ioctl = fcntl.ioctl) -> None:
    """Reconfigure the region of a port."""
    content = image.read_bytes()
    magic = len(fpga_images.GBS_MAGIC)
    if not content.startswith(fpga_images.GBS_MAGIC):
        raise Failed(f'{image} is not a GBS.')
    header = magic + 4 + int.from_bytes(content[magic:magic + 4], 'little')
    bits = content[header:]
    if not bits:
        raise Failed(f'{image} has a description but no bits.')
    buffer = ctypes.create_string_buffer(bits, len(bits))
    argument = PORT_PR_ARGUMENT.pack(
        PORT_PR_ARGUMENT.size, 0, int(port), len(bits), ctypes.addressof(buffer))
    manager = os.open(device, os.O_RDWR)
    try:
        ioctl(manager, PORT_PR, argument)
    finally:
        os.close(manager)


def load_manager(name: str, extent: str, image: Path, firmware: Path = FIRMWARE,
                 managers: Path = MANAGERS, write: sysfs.Writer = sysfs.write) -> None:
    """Have an FPGA manager load a file. The kernel reads it from its own place."""
    manager = managers / name
    if not (manager / 'firmware').exists():
        raise Failed(f'{manager} has no attribute firmware: this kernel loads images through '
                     'overlays of the device tree only.')
    handle, copy = tempfile.mkstemp(prefix='cyborg-', dir=firmware)
    os.close(handle)
    try:
        shutil.copyfile(image, copy)
        if (manager / 'flags').exists():
            write(manager / 'flags', FLAGS[extent])
        elif extent == 'partial':
            raise Failed(f'{manager} has no attribute flags, so it loads whole images only.')
        try:
            write(manager / 'firmware', Path(copy).name)
        except OSError as error:
            raise Failed(f'{name} refused the image ({error.strerror}); its state is '
                         f'"{_state(manager)}".') from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)
    if (state := _state(manager)) != OPERATING:
        raise Failed(f'{name} took the image, but its state is "{state}".')


def _state(manager: Path) -> str:
    return (manager / 'state').read_text().strip()


def main() -> None:
    """Load what the command line says."""
    words = sys.argv[1:]
    try:
        if (len(words) == 4 and words[0] == 'port' and words[2].isdecimal()
                and re.fullmatch('/dev/dfl-fme\\.[0-9]+', words[1])):
            load_port(words[1], words[2], Path(words[3]))
        elif (len(words) == 4 and words[0] == 'manager' and words[2] in FLAGS
                and re.fullmatch('fpga[0-9]+', words[1])):
            load_manager(words[1], words[2], Path(words[3]))
        else:
            raise Failed('Usage: cyborg-fpga-load port /dev/dfl-fme.N PORT IMAGE, or '
                         'cyborg-fpga-load manager fpgaN full|partial IMAGE')
    except (Failed, OSError) as error:
        sys.exit(str(error))
