# SPDX-License-Identifier: Apache-2.0
"""Simulated mediated devices, by the rules of cards that are divided into equal parts."""

import dataclasses
import errno
import re

from cyborg.accelerator import mdev, pci
from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import Store, kernel_error

DEVICES = 'bus/mdev/devices'
DRIVERS = 'bus/mdev/drivers'
#: The kernel ignores the case and one more character after the uuid.
UUID = re.compile('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}.?', re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Device:
    """A mediated device that exists."""

    uuid: str
    kind: str
    parent: Function

    @property
    def path(self) -> str:
        return f'{self.parent.path}/{self.uuid}'


class Mediated(Feature):
    """The mediated device types of a function.

    A card holds devices of one type at a time, up to ``max_instance``. If it has virtual
    functions, each of these holds one device. A device of a type with ``gpu_instances`` (MIG)
    uses one GPU instance, independently of the other devices on the card.
    """

    key = 'mdev'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._join_group = bus.join_group
        self._devices: dict[str, Device] = {}
        self._parents: list[Function] = []
        self._tree.directory(DEVICES)
        self._tree.directory('class/mdev_bus')

    def bind(self, function: Function) -> None:
        for kind, facts in self._kinds(function).items():
            path = self._path(function, kind)
            self._tree.file(f'{path}/name', facts['name'])
            self._tree.file(f'{path}/device_api', 'vfio-pci')
            self._tree.file(f'{path}/description', self._description(facts))
            self._tree.directory(f'{path}/devices')
            self._tree.trigger(f'{path}/create', self._creator(function, kind))
        self._parents.append(function)
        for kind in self._kinds(function):
            self._count(function, kind)
        self._tree.link(f'class/mdev_bus/{function.address}', function.path)
        self._tree.emit('change', 'pci', function.address, MDEV_STATE='registered')

    def unbind(self, function: Function) -> None:
        for device in [each for each in self._devices.values() if each.parent is function]:
            self._remove(device)
        self._parents.remove(function)
        self._tree.remove(f'class/mdev_bus/{function.address}')
        self._tree.remove(f'{function.path}/mdev_supported_types')
        self._tree.emit('change', 'pci', function.address, MDEV_STATE='unregistered')

    @staticmethod
    def recorded(function: pci.Function) -> Facts | None:
        kinds, prefix = {}, f'{function.driver}-'
        for name, kind in mdev.types(function).items():
            if not name.startswith(prefix):
                return None
            described = re.findall(r'(\w+)=([^,\s]*)', kind.read('description') or '')
            room = kind.max_instances or kind.available + len(kind.instances)
            kinds[name.removeprefix(prefix)] = {
                'name': kind.title,
                **dict(described),
                'max_instance': room,
            }
        return {'types': kinds} if kinds else None

    def _kinds(self, function: Function) -> dict[str, Facts]:
        driver = function.facts['driver']
        return {
            f'{driver}-{number}': facts for number, facts in function.facts['mdev']['types'].items()
        }

    @staticmethod
    def _driver(function: Function) -> str:
        """Return the driver that is bound to the mediated devices."""
        return f'{function.facts["driver"]}-vgpu-vfio'

    @staticmethod
    def _path(function: Function, kind: str) -> str:
        return f'{function.path}/mdev_supported_types/{kind}'

    @staticmethod
    def _description(facts: Facts) -> str:
        return ', '.join(
            f'{key}={value}' for key, value in facts.items() if key not in ('name', 'gpu_instances')
        )

    def _available(self, function: Function, kind: str) -> int:
        on_card = [each for each in self._devices.values() if each.parent.card is function.card]
        facts = self._kinds(function)[kind]
        if 'gpu_instances' in facts:
            left: int = facts['gpu_instances'] - sum(1 for each in on_card if each.kind == kind)
        elif any(each.kind != kind for each in on_card):
            return 0
        else:
            left = facts['max_instance'] - len(on_card)
        if function.parent:
            return 0 if any(each.parent is function for each in on_card) else min(left, 1)
        return left

    def _recount(self, card: Function) -> None:
        for function in self._parents:
            if function.card is card:
                for kind in self._kinds(function):
                    self._count(function, kind)

    def _count(self, function: Function, kind: str) -> None:
        self._tree.file(
            f'{self._path(function, kind)}/available_instances',
            str(self._available(function, kind)),
        )

    def _creator(self, function: Function, kind: str) -> Store:
        def create(text: str) -> None:
            if not UUID.fullmatch(text):
                raise kernel_error(errno.EINVAL)
            device = Device(text[:36].lower(), kind, function)
            if device.uuid in self._devices:
                raise kernel_error(errno.EEXIST)
            self._tree.emit('add', 'mdev', device.uuid, path=device.path)
            if self._available(function, kind) < 1:
                self._tree.emit(
                    'remove', 'mdev', device.uuid
                )  # the kernel emits an add event also for a device that cannot be created
                raise kernel_error(errno.ENOSPC)
            self._add(device)

        return create

    def _add(self, device: Device) -> None:
        path, kind = device.path, self._path(device.parent, device.kind)
        self._devices[device.uuid] = device
        driver = self._driver(device.parent)
        self._tree.file(
            f'{path}/uevent',
            f'DRIVER={driver}',
            lambda text: self._tree.synthesize(text, 'mdev', device.uuid),
        )
        self._tree.link(f'{path}/driver', f'{DRIVERS}/{driver}')
        self._tree.file(f'{path}/power/control', 'auto')
        self._join_group(path)
        self._tree.link(f'{path}/mdev_type', kind)
        self._tree.link(f'{path}/subsystem', 'bus/mdev')
        self._tree.trigger(f'{path}/remove', lambda text: self._remove_if(device, text))
        self._tree.link(f'{kind}/devices/{device.uuid}', path)
        self._tree.link(f'{DEVICES}/{device.uuid}', path)
        self._recount(device.parent.card)
        self._tree.emit('bind', 'mdev', device.uuid)

    def _remove_if(self, device: Device, text: str) -> None:
        if not text.isdecimal():
            raise kernel_error(errno.EINVAL)
        if int(text):
            self._remove(device)

    def _remove(self, device: Device) -> None:
        del self._devices[device.uuid]
        kind = self._path(device.parent, device.kind)
        for name in (
            self._tree.real(f'{device.path}/iommu_group'),
            f'{DEVICES}/{device.uuid}',
            f'{kind}/devices/{device.uuid}',
            device.path,
        ):
            self._tree.remove(name)
        self._recount(device.parent.card)
        self._tree.emit('unbind', 'mdev', device.uuid)
        self._tree.emit('remove', 'mdev', device.uuid)
