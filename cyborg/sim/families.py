# SPDX-License-Identifier: Apache-2.0
"""What the kernel drivers of disks, network cards and DSA show of a simulated card."""

import errno
import itertools
import re
from collections.abc import Callable

from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import refuse

#: No kernel has devices of this number: real mounts are never taken for simulated ones.
MAJOR = 4090


class DriverFiles(Feature):
    """Files that a driver shows and that nothing happens to."""

    key = 'driver_files'

    def bind(self, function: Function) -> None:
        for name, text in function.facts[self.key].items():
            self._tree.file(f'{function.path}/{name}', str(text))

    def unbind(self, function: Function) -> None:
        for name in function.facts[self.key]:
            self._tree.remove(f'{function.path}/{name.split("/")[0]}')


class Net(Feature):
    """A network interface, named after its place as udev does; ``up`` if the host uses it."""

    key = 'net'

    def bind(self, function: Function) -> None:
        facts, (_, bus, device, number) = function.facts['net'], re.split(
            '[:.]', function.address)
        name = facts.get('name', f'enp{int(bus, 16)}s{int(device, 16)}f{number}')
        path, is_up = f'{function.path}/net/{name}', facts.get('up', False)
        for attribute, text in {
                'address': f'02:00:00:{bus}:{device}:0{number}', 'mtu': '1500',
                'operstate': 'up' if is_up else 'down',
                'flags': '0x1003' if is_up else '0x1002'}.items():
            self._tree.file(f'{path}/{attribute}', text)
        self._tree.link(f'{path}/device', function.path)
        self._tree.link(f'class/net/{name}', path)

    def unbind(self, function: Function) -> None:
        for interface in self._tree.path(f'{function.path}/net').iterdir():
            self._tree.remove(f'class/net/{interface.name}')
        self._tree.remove(f'{function.path}/net')


class Nvme(Feature):
    """A controller and its namespaces. Of each: its number of ``partitions``, its ``holders``,
    and whether the host has it ``mounted`` or uses it for ``swap``."""

    key = 'nvme'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._minors = itertools.count()
        self._mounts: dict[str, list[str]] = {}
        self._swaps: dict[str, list[str]] = {}
        self._tree.remove('proc')

    def bind(self, function: Function) -> None:
        # the lowest number that is free, as the kernel gives them out
        number = next(each for each in itertools.count()
                      if not self._tree.path(f'class/nvme/nvme{each}').is_symlink())
        facts, path = function.facts['nvme'], f'{function.path}/nvme/nvme{number}'
        for name, text in {
                'model': f'{facts.get("model", "Simulated disk"):40}',
                'serial': f'{facts.get("serial", "SIM0"):20}', 'firmware_rev': '1.0     ',
                'state': facts.get('state', 'live'), 'transport': 'pcie',
                'address': function.address, 'cntlid': '0', 'numa_node': '-1',
                'subsysnqn': f'nqn.2014.08.org.example:sim{number}'}.items():
            self._tree.file(f'{path}/{name}', text)
        self._tree.link(f'class/nvme/nvme{number}', path)
        for space, use in enumerate(facts.get('namespaces', [{}]), 1):
            self._disk(function, f'{path}/nvme{number}n{space}', use)
        self._tell()
        self._tree.emit('add', 'nvme', f'nvme{number}')

    def unbind(self, function: Function) -> None:
        for controller in self._tree.path(f'{function.path}/nvme').iterdir():
            for disk in controller.glob(f'{controller.name}n*'):
                for part in (disk, *disk.glob(f'{disk.name}p*')):
                    self._tree.remove(f'class/block/{part.name}')
            self._tree.remove(f'class/nvme/{controller.name}')
            self._tree.emit('remove', 'nvme', controller.name)
        self._tree.remove(f'{function.path}/nvme')
        for table in (self._mounts, self._swaps):
            table.pop(function.address, None)
        self._tell()

    def _disk(self, function: Function, path: str, use: Facts) -> None:
        self._block(path)
        parts = [f'{path}/{path.rpartition("/")[2]}p{number}'
                 for number in range(1, use.get('partitions', 0) + 1)]
        for number, part in enumerate(parts, 1):
            self._block(part)
            self._tree.file(f'{part}/partition', str(number))
        last = (parts or [path])[-1]
        for holder in use.get('holders', ()):
            self._tree.directory(f'{last}/holders/{holder}')
        name, device = last.rpartition('/')[2], self._tree.text(f'{last}/dev')
        if use.get('mounted'):
            self._mounts.setdefault(function.address, []).append(
                f'25 1 {device} / /srv rw - ext4 /dev/{name} rw')
        if use.get('swap'):
            self._swaps.setdefault(function.address, []).append(
                f'/dev/{name} partition 1024 0 -2')

    def _block(self, path: str) -> None:
        self._tree.file(f'{path}/dev', f'{MAJOR}:{next(self._minors)}')
        self._tree.file(f'{path}/size', '2097152')
        self._tree.directory(f'{path}/holders')
        self._tree.link(f'class/block/{path.rpartition("/")[2]}', path)

    def _tell(self) -> None:
        for name, head, table in (('self/mountinfo', [], self._mounts),
                                  ('swaps', ['Filename Type Size Used Priority'], self._swaps)):
            lines = head + [line for lines in table.values() for line in lines]
            self._tree.file(f'proc/{name}', '\n'.join(lines))


class Idxd(Feature):
    """An accelerator with work queues, which drivers on a bus of their own are bound to."""

    key = 'idxd'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._count = itertools.count()
        self._places: dict[str, str] = {}
        for driver in ('idxd', 'user', 'dmaengine'):
            for verb, state in (('bind', 'enabled'), ('unbind', 'disabled')):
                self._tree.trigger(f'bus/dsa/drivers/{driver}/{verb}', self._switch(driver, state))

    def bind(self, function: Function) -> None:
        facts = function.facts['idxd']
        number = next(self._count)
        name = f'{facts["kind"]}{number}'
        path = f'{function.path}/{name}'
        self._show(name, path, {
            'version': '0x100', 'state': 'disabled', 'max_groups': '4', 'max_engines': '4',
            'max_work_queues': '8', 'max_work_queues_size': '128', 'configurable': '1',
            'errors': '0', 'pasid_enabled': '1', 'cdev_major': '511', 'numa_node': '0',
            'max_batch_size': '1024', 'max_transfer_size': '2147483648', 'cmd_status': '0x0',
            'op_cap': '00000000,' * 7 + '003f03ff'})
        for kind, facts_of_kind in (('group', {'engines': '', 'work_queues': ''}),
                                    ('engine', {'group_id': '-1'})):
            for place in range(4):
                self._show(f'{kind}{number}.{place}', f'{path}/{kind}{number}.{place}',
                           facts_of_kind)
        for queue in range(facts.get('queues', 8)):
            self._show(f'wq{number}.{queue}', f'{path}/wq{number}.{queue}', {
                'state': 'disabled', 'mode': 'dedicated', 'type': 'none', 'name': '',
                'driver_name': '', 'size': '0', 'priority': '0', 'group_id': '-1',
                'threshold': '0', 'block_on_fault': '0', 'cdev_minor': '-1', 'occupancy': '0',
                'max_batch_size': '1024', 'ats_disable': '0'})
        self._tree.emit('add', 'dsa', name)

    def unbind(self, function: Function) -> None:
        for name in [name for name, path in self._places.items()
                     if path.startswith(f'{function.path}/')]:
            self._tree.remove(f'bus/dsa/devices/{name}')
            self._tree.remove(self._places.pop(name))
            self._tree.emit('remove', 'dsa', name)

    def _show(self, name: str, path: str, attributes: dict[str, str]) -> None:
        for attribute, text in attributes.items():
            self._tree.file(f'{path}/{attribute}', text)
        self._tree.link(f'bus/dsa/devices/{name}', path)
        self._places[name] = path

    def _switch(self, driver: str, state: str) -> Callable[[str], None]:
        def switch(name: str) -> None:
            if name not in self._places or name.startswith('wq') is (driver == 'idxd'):
                raise refuse(errno.ENODEV)
            card = self._places[name].rpartition('/')[0]
            if name.startswith('wq') and self._tree.text(f'{card}/state') != 'enabled':
                raise refuse(errno.EPERM)
            self._tree.retell(f'{self._places[name]}/state', state)
            self._tree.emit('bind' if state == 'enabled' else 'unbind', 'dsa', name)
        return switch
