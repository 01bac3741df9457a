# SPDX-License-Identifier: Apache-2.0
"""Mediated devices: the types that a parent offers, and how a device is made and removed."""

import errno
import re
import time
from collections.abc import Mapping
from typing import TypeVar

from cyborg import errors
from cyborg.accelerator import sharing
from cyborg.accelerator.sysfs import Node, Sysfs

DEVICES = 'bus/mdev/devices'
TYPES = 'mdev_supported_types'
#: Seconds within which a device must appear after it was made, or disappear after it was removed.
PATIENCE = 5.0
PAUSE = 0.05
TRIES = 3  #: attempts to count devices while others make and remove some
#: No parent holds more devices. A larger number is an error of the vendor's driver.
MOST = 1024
#: What kernel drivers of different vendors return if a parent is full.
NO_ROOM = frozenset({errno.ENOSPC, errno.EUSERS, errno.EIO, errno.EINVAL})
UUID = '-'.join('?' * count for count in (8, 4, 4, 4, 12))  #: as a pattern of names
#: What a driver of mediated devices declares: see ``subsystems``, ``writes`` and ``runs`` of
#: driver.Driver.
SUBSYSTEMS = ('mdev',)
WRITES = (f'{TYPES}/*/create', f'{UUID}/remove')
RUNS = (f'mdevctl list --defined --uuid {UUID}', f'mdevctl undefine --uuid {UUID}')
N = TypeVar('N', bound=Node)


class Type(Node):
    """A type on a parent. Operators name the type by its directory in their options."""

    @property
    def title(self) -> str:
        """Returns the vendor's name of the type (GRID T4-2B), or else that of the directory."""
        return self.read('name') or self.name

    @property
    def available(self) -> int:
        return _plausible(self.number('available_instances')) or 0

    @property
    def instances(self) -> list[str]:
        return [device.name for device in self.children('devices/*')]

    @property
    def max_instances(self) -> int | None:
        """Returns how many devices a card can hold at most; None if the vendor does not say.
        ``available`` is less, because devices of other types count, too."""
        told = re.search(r'max_instance\s*=\s*(\d{1,9})\b', self.read('description') or '')
        return _plausible(int(told[1])) if told else None


def _plausible(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= MOST else None


def types(parent: Node) -> dict[str, Type]:
    """Returns the types that a parent offers, by directory name."""
    return {node.name: Type(node.path, parent.host) for node in parent.children(f'{TYPES}/*')}


def instances(parent: Node) -> dict[str, str]:
    """Returns all devices of a parent, also those of other programs: uuid -> type."""
    return {
        node.name: kind.name for node in parent.children(UUID) if (kind := node.link('mdev_type'))
    }


def room(parent: N, kind: str, ceiling: int | None) -> sharing.Room[N]:
    """Returns the room for devices of a type on a parent that holds many."""
    offered = Type(parent.path / TYPES / kind, parent.host)
    for _ in range(TRIES):
        held, available = offered.instances, offered.available
        if offered.instances == held:
            break  # else a device was made or removed in between
    return sharing.on_one(parent, held, available, ceiling)


def spread(parents: Mapping[int, N], kind: str, ceiling: int | None) -> sharing.Room[N]:
    """Returns the room for devices of a type on parents that hold one device each."""
    occupants, free, full = {}, [], []
    for number, parent in parents.items():
        present = instances(parent)
        if same := [uuid for uuid, each in present.items() if each == kind]:
            occupants[number] = same[0]
        elif Type(parent.path / TYPES / kind, parent.host).available:
            free.append(number)
        elif not present:  # else it holds a device of another type
            full.append(number)
    return sharing.on_many(parents, occupants, free, full, ceiling)


def create(parent: Node, kind: str, uuid: str) -> None:
    """Make a device and wait until it appears. If the same device exists already, do nothing."""
    if _is_there(parent, kind, uuid):
        return
    offered = types(parent)
    if kind not in offered:
        raise errors.DriverFailed(
            f'{parent.name} offers no mediated device of type {kind}; it offers: '
            f'{", ".join(offered) or "none"}.'
        )
    try:
        offered[kind].write('create', uuid)
    except OSError as error:
        if error.errno == errno.EEXIST and _is_there(parent, kind, uuid):
            return  # another program, such as Nova, made it meanwhile
        full = error.errno in NO_ROOM and not offered[kind].available
        why = 'it has no room left' if full else error.strerror or str(error)
        raise errors.DriverFailed(
            f'{parent.name} did not make the mediated device {uuid} of type {kind}: {why}.'
        ) from error
    _wait(parent.host / DEVICES / uuid, True, f'{uuid} on {parent.name}')


def exists(sysfs: Sysfs, uuid: str) -> bool:
    """Returns whether a device exists."""
    return (sysfs / DEVICES / uuid).exists()


def remove(sysfs: Sysfs, uuid: str) -> None:
    """Remove a device, if it exists, and its stored definition, which would start it at the next
    boot."""
    device = sysfs / DEVICES / uuid
    if device.exists():
        try:
            device.write('remove', '1')
        except OSError as error:
            if device.exists():
                raise errors.DriverFailed(
                    f'The mediated device {uuid} cannot be removed: {error.strerror or error}.'
                ) from error
        _wait(device, False, uuid)
    _undefine(sysfs, uuid)


def _is_there(parent: Node, kind: str, uuid: str) -> bool:
    device = parent.host / DEVICES / uuid
    if not device.exists():
        return False
    present = device.link('mdev_type')
    # the type's directory lies below its parent's
    if present and present.name == kind and present.path.parent.parent.name == parent.name:
        return True
    where = (
        f'of type {present.name}, at {present.path.parent.parent.name}'
        if present
        else 'of an unknown type'
    )
    raise errors.DriverFailed(
        f'The mediated device {uuid} exists already, {where}; it is wanted of type {kind}, '
        f'at {parent.name}.'
    )


def _wait(device: Node, wanted: bool, label: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while device.exists() is not wanted:
        if time.monotonic() > deadline:
            raise errors.DriverFailed(
                f'The mediated device {label} did not {"appear" if wanted else "go"} within '
                f'{PATIENCE:g} seconds.'
            )
        time.sleep(PAUSE)


def _undefine(sysfs: Sysfs, uuid: str) -> None:
    """Remove the definition that libvirt stores for Nova. A device with a definition is started at
    boot."""
    try:
        defined = sysfs.run('mdevctl', 'list', '--defined', '--uuid', uuid)
    except (TimeoutError, PermissionError) as error:  # it is not known whether there is one
        raise errors.DriverFailed(
            f'The definition of the mediated device {uuid} cannot be looked up: {error}'
        ) from error
    except OSError:
        return  # without mdevctl there are no definitions; otherwise this device has none
    if uuid in defined:
        try:
            sysfs.run('mdevctl', 'undefine', '--uuid', uuid)
        except OSError as error:
            raise errors.DriverFailed(
                f'The definition of the mediated device {uuid} cannot be removed: {error}'
            ) from error
