# SPDX-License-Identifier: Apache-2.0
"""How the host itself uses a PCI function: a disk behind it, its network interface, its clock.

The host shows its use in sysfs, in the tables of mounts and swap and, for clocks, in the files
that processes have open. A disk that a program has open without any of these, as some storage
services do, looks unused: operators name such disks in ``host_addresses``.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from cyborg.accelerator.pci import Function
from cyborg.accelerator.sysfs import Node, Sysfs

LONGEST_TABLE = 64 * 1024 * 1024
#: Classes of devices through which a host takes the time from a card: clock, pulses, receiver.
CLOCKS = ('ptp', 'pps', 'tty', 'gnss')
#: The name of one of several paths to an NVMe disk. The disk itself is listed under another
#: name.
PATH = re.compile(r'(nvme\d+)c\d+(n\d+)')


def disk_use(function: Function, counts_partitions: bool = True) -> str | None:
    """Returns how the host uses a disk behind a function; None if no use can be seen.

    A disk with partitions counts as used, because the host may have made them. After a guest had
    the disk they do not count, because the guest may have made them.
    """
    used = taken(function.host)
    for disk in disks(function):
        parts = [Node(node.path.parent, node.host) for node in disk.children('*/partition')]
        for part in (disk, *parts):
            if part.read('dev') in used or part.name in used:
                return f'{part.name} is mounted or used for swap'
            if part.children('holders/*'):
                return f'{part.name} is part of a volume'
        if parts and counts_partitions:
            return f'{disk.name} has partitions'
    return None


def disks(function: Function) -> Iterator[Node]:
    """Returns the whole disks behind a function."""
    names = {
        PATH.sub(r'\1\2', node.name)
        for node in _behind(function, 'block')
        if not node.has('partition')
    }
    for name in sorted(names):
        if disk := (function.host / 'class/block').link(name):
            yield disk


def reached_disk_use(function: Function, counts_partitions: bool = True) -> str | None:
    """Returns the same for a function that may be virtual. A virtual function may reach the disks
    that the host uses through the physical function."""
    physical = function.link('physfn') if function.is_virtual else None
    owners = [function, *([Function.at(function.host, physical.name)] if physical else [])]
    return next(filter(None, (disk_use(each, counts_partitions) for each in owners)), None)


def interface_use(function: Function) -> str | None:
    """Returns which network interface of a function is up; None if none is."""
    for interface in function.children('net/*'):
        if interface.read('operstate') == 'up':
            return f'{interface.name} is up'
    return None


def clock_use(function: Function) -> str | None:
    """Returns which program has a clock of a function open, or a device that belongs to the clock;
    None if none has.

    Services that set the time of the host by a clock (ptp4l, phc2sys, chronyd, gpsd) keep it
    open.
    """
    names = [node.name for kind in CLOCKS for node in _behind(function, kind)]
    for name, program in sorted(function.host.opened(names).items() if names else ()):
        return f'{program} has {name} open'
    return None


def _behind(function: Function, kind: str) -> list[Node]:
    """Returns the devices of a class that are below a function."""
    card = function.real()

    def is_behind(place: Path | None) -> bool:
        return bool(card and place and place.is_relative_to(card))

    return [node for node in (function.host / 'class' / kind).children() if is_behind(node.real())]


def taken(host: Sysfs) -> set[str]:
    """Returns the block devices that hold a mounted file system or swap, by number and by
    name."""
    return _mounted(host) | _swapped(host) | _pooled(host)


def _mounted(host: Sysfs) -> set[str]:
    taken: set[str] = set()
    for process in ('1', 'self'):  # in a container only the first shows the host's mounts
        table = host.proc.read(f'{process}/mountinfo', LONGEST_TABLE)
        for line in (table or '').splitlines():
            place, _, source = line.partition(' - ')
            taken.update(
                place.split()[2:3], (name.rpartition('/')[2] for name in source.split()[1:2])
            )
    return taken


def _swapped(host: Sysfs) -> set[str]:
    lines = (host.proc.read('swaps') or '').splitlines()
    return {line.split()[0].rpartition('/')[2] for line in lines[1:] if line.split()}


def _pooled(host: Sysfs) -> set[str]:
    """Returns all devices of file systems that span several devices. The table of mounts names
    only one of them."""
    return {node.name for node in (host / 'fs/btrfs').children('*/devices/*')}
