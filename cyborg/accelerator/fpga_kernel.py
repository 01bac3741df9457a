# SPDX-License-Identifier: Apache-2.0
"""Loads images into FPGAs through the kernel, for cards without a tool of their maker."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import shutil
import signal
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from cyborg.accelerator import fpga_images, sysfs

#: DFL_FPGA_FME_PORT_PR of linux/fpga-dfl.h, and its argument: size, flags, port, length, address
PORT_PR = 0xB680
PORT_PR_ARGUMENT = struct.Struct('=IIIIQ')
MANAGERS = Path('/sys/class/fpga_manager')
#: where the kernel looks for files that it loads
FIRMWARE = Path('/lib/firmware')
OPERATING = 'operating'
FLAGS = {'full': '0', 'partial': '1'}

Ioctl = Callable[[int, int, bytes], object]
#: A context in which a file with this path may exist.
Guard = Callable[[Path], contextlib.AbstractContextManager[None]]


class Failed(Exception):
    """An image was not loaded. The message is a sentence for the operator."""


def load_port(device: str, port: str, image: Path, ioctl: Ioctl = fcntl.ioctl) -> None:
    """Reconfigure the region of a port."""
    with image.open('rb') as file:
        start, length = _bits(file, image)
        # the kernel copies the bits from the pages of the file; ctypes gives the address of a
        # private mapping only
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapping:
            address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
            argument = PORT_PR_ARGUMENT.pack(
                PORT_PR_ARGUMENT.size, 0, int(port), length, address + start
            )
            manager = os.open(device, os.O_RDWR)
            try:
                ioctl(manager, PORT_PR, argument)
            finally:
                os.close(manager)


def _bits(file: IO[bytes], image: Path) -> tuple[int, int]:
    """Returns where the bits of a GBS begin, and how many bytes they have."""
    if file.read(len(fpga_images.GBS_MAGIC)) != fpga_images.GBS_MAGIC:
        raise Failed(f'{image} is not a GBS.')
    start = int.from_bytes(file.read(4), 'little') + file.tell()
    length = image.stat().st_size - start
    if length <= 0:
        raise Failed(f'{image} has a description but no bits.')
    return start, length


@contextlib.contextmanager
def removed(copy: Path) -> Iterator[None]:
    """Removes the file at the end of the block."""
    try:
        yield
    finally:
        copy.unlink(missing_ok=True)


@contextlib.contextmanager
def removed_if_killed(copy: Path) -> Iterator[None]:
    """Removes the file also if this process and its group are killed: a child in a session of its
    own waits for the end of this process. It forks, so only a process with one thread may use
    it."""
    ready, set_ready = os.pipe()
    end, until_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(each, signal.SIG_IGN)
            os.close(until_end)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):  # whoever reads the output waits until nobody has it open
                os.dup2(nothing, stream)
            os.write(set_ready, b'.')
            os.read(end, 1)
            copy.unlink(missing_ok=True)
        finally:
            os._exit(0)
    try:
        os.close(set_ready)
        os.read(ready, 1)
        with removed(copy):
            yield
    finally:
        os.close(until_end)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(end)


def load_manager(
    name: str,
    extent: str,
    image: Path,
    firmware: Path = FIRMWARE,
    managers: Path = MANAGERS,
    write: sysfs.Writer = sysfs.write,
    guard: Guard = removed,
) -> None:
    """Have an FPGA manager load a file. The kernel reads files only from its own directory.

    ``guard`` is entered before the copy there is made, and removes it at its end.
    """
    manager = managers / name
    if not (manager / 'firmware').exists():
        raise Failed(
            f'{manager} has no attribute firmware: this kernel loads images through '
            'overlays of the device tree only.'
        )
    # A manager has one load at a time. A file of an earlier load is there if the host went down.
    prefix = f'cyborg-{name}-'
    for left in firmware.glob(f'{prefix}*'):
        left.unlink(missing_ok=True)
    # Each load has a name of its own: while the kernel still loads a file, it uses the content for
    # all requests with the same name.
    copy = firmware / f'{prefix}{uuid.uuid4()}'
    with guard(copy):
        copy.touch(mode=0o600, exist_ok=False)
        shutil.copyfile(image, copy)
        if (manager / 'flags').exists():
            write(manager / 'flags', FLAGS[extent])
        elif extent == 'partial':
            raise Failed(f'{manager} has no attribute flags, so it loads whole images only.')
        try:
            write(manager / 'firmware', copy.name)
        except OSError as error:
            raise Failed(
                f'{name} refused the image ({error.strerror}); its state is "{_state(manager)}".'
            ) from error
    if (state := _state(manager)) != OPERATING:
        raise Failed(f'{name} took the image, but its state is "{state}".')


def _state(manager: Path) -> str:
    return (manager / 'state').read_text().strip()
