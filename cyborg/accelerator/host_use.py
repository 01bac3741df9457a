# SPDX-License-Identifier: Apache-2.0
"""Whether the host itself uses a PCI function: a disk behind it, its network interface, its
clock.

What of that shows in sysfs, in the tables of mounts and swap, and, of clocks, in the files that
processes have open. A disk that a program has open
without any of these, as some storage services do, looks unused: operators name such cards.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from cyborg.accelerator.pci import Function
from cyborg.accelerator.sysfs import Node, Sysfs

LONGEST_TABLE = 64 * 1024 * 1024
#: Classes of devices through which a host takes the time from a card: its clock, its pulses, its
#: receiver.
CLOCKS = ('ptp', 'pps', 'tty', 'gnss')
#: A path to an NVMe disk that may have several: the disk itself is listed elsewhere.
PATH = re.compile(r'(nvme\d+)c\d+(n\d+)')


def disk_use(function: Function, counts_partitions: bool = True) -> str | None:
    """What the host does with a disk behind a function; None if nothing that we can see.

    Partitions may be the host's. After a guest had the disk they do not count: they are its.
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
    """Whole disks behind a function, wherever they hang."""
    names = {PATH.sub(r'\1\2', node.name) for node in _behind(function, 'block')
             if not node.has('partition')}
    for name in sorted(names):
        if disk := (function.host / 'class/block').link(name):
            yield disk


def reached_disk_use(function: Function, counts_partitions: bool = True) -> str | None:
    """The same for a function that may be virtual: the disks that the host uses through the
    physical function may be among those that it reaches."""
    physical = function.link('physfn') if function.is_virtual else None
    owners = [function, *([Function.at(function.host, physical.name)] if physical else [])]
    return next(filter(None, (disk_use(each, counts_partitions) for each in owners)), None)


def interface_use(function: Function) -> str | None:
    """Which interface of a function carries the host's traffic; None if none does."""
    for interface in function.children('net/*'):
        if interface.read('operstate') == 'up':
            return f'{interface.name} is up'
    return None


def clock_use(function: Function) -> str | None:
    """Which program has a clock of a function open, or what comes with it; None if none has.

    Services that discipline the host's time by a clock (ptp4l, phc2sys, chronyd, gpsd) keep it
    open.
    """
    names = [node.name for kind in CLOCKS for node in _behind(function, kind)]
    for name, program in sorted(function.host.opened(names).items() if names else ()):
        return f'{program} has {name} open'
    return None


def _behind(function: Function, kind: str) -> list[Node]:
    """The devices of a class that hang below a function."""
    card = function.real()

    def is_behind(place: Path | None) -> bool:
        return bool(card and place and place.is_relative_to(card))
    return [node for node in (function.host / 'class' / kind).children()
            if is_behind(node.real())]


def taken(host: Sysfs) -> set[str]:
    """What holds a mounted file system or swap, by number and by name."""
    return _mounted(host) | _swapped(host) | _pooled(host)


def _mounted(host: Sysfs) -> set[str]:
    taken: set[str] = set()
    for process in ('1', 'self'):  # in a container only the first tells of the host
        table = host.proc.read(f'{process}/mountinfo', LONGEST_TABLE)
        for line in (table or '').splitlines():
            place, _, source = line.partition(' - ')
            taken.update(place.split()[2:3], (name.rpartition('/')[2]
                                              for name in source.split()[1:2]))
    return taken


def _swapped(host: Sysfs) -> set[str]:
    lines = (host.proc.read('swaps') or '').splitlines()
    return {line.split()[0].rpartition('/')[2] for line in lines[1:] if line.split()}


def _pooled(host: Sysfs) -> set[str]:
    """File systems over several devices name one of them only in the table of mounts."""
    return {node.name for node in (host / 'fs/btrfs').children('*/devices/*')}
