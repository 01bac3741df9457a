# SPDX-License-Identifier: Apache-2.0
"""Simulated NVMe disks: the attributes of their kernel driver, nvme-cli, and data of guests.

The fact ``nvme`` of a card may have ``formats: false`` (it does not support the format command),
``fna`` (the identify field that says what a format command applies to), ``sanitizes: false``,
``sanitize_reads`` (how often the log must be read until a sanitize operation ends),
``sanitize_fails`` and ``manages: false`` (it does not support namespace management).
"""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping

from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import Tree

#: No kernel uses this major device number, so a real mount is never taken for a simulated one.
MAJOR = 4090
NEVER, DONE, RUNNING, FAILED = range(4)
STATES = (
    'NVM Subsystem has never been sanitized.',
    'Most Recent Sanitize Command Completed Successfully.',
    'Sanitize in Progress.',
    'Most Recent Sanitize Command Failed.',
)
DEVICE = re.compile(r'/dev/(nvme\d+)(n(\d+))?')
UNKNOWN_OPCODE = 'NVMe status: Invalid Command Opcode: A reserved coded value(0x4001)'
UNKNOWN_FIELD = 'NVMe status: Invalid Field in Command: A reserved coded value(0x4002)'
BUSY = 'NVMe status: Sanitize In Progress: The requested function is prohibited(0x401d)'
BAD_ARGUMENT = 22


def namespaces(function: Function) -> list[Facts]:
    """Return the facts of the namespaces of a disk; an empty list for any other card."""
    facts = function.facts.get('nvme')
    return [] if facts is None else facts.setdefault('namespaces', [{}])


def write_as_guest(function: Function) -> None:
    """Partition all namespaces and write to them, as a guest does."""
    for space in namespaces(function):
        space.update(data='guest', partitions=1)


def traces(function: Function) -> list[str]:
    """Return the namespaces that hold data of a guest."""
    return [
        f'namespace {number}'
        for number, space in enumerate(namespaces(function), 1)
        if 'data' in space
    ]


def disks(tree: Tree, function: Function, controller: str) -> dict[int, str]:
    """Return the names of the block devices of a controller, by the number of the namespace."""
    return {
        int(file.read_text()): file.parent.name
        for file in tree.path(f'{function.path}/nvme/{controller}').glob(f'{controller}n*/nsid')
    }


class Nvme(Feature):
    """An NVMe controller and its namespaces. Facts of a namespace: the number of ``partitions``,
    its ``holders``, whether the host has it ``mounted`` or uses it for ``swap``, whether it is
    ``detached``, and ``late``: how often ``nvme list-ns`` must run until the kernel has found it
    after the driver was bound."""

    key = 'nvme'

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._minors = itertools.count()
        self._mounts: dict[str, list[str]] = {}
        self._swaps: dict[str, list[str]] = {}
        #: address -> how often nvme list-ns has run since the driver was bound
        self._scans: dict[str, int] = {}
        self._tree.remove('proc')

    def bind(self, function: Function) -> None:
        # the kernel, too, takes the lowest free number
        number = next(
            each
            for each in itertools.count()
            if not self._tree.path(f'class/nvme/nvme{each}').is_symlink()
        )
        facts, path = function.facts['nvme'], f'{function.path}/nvme/nvme{number}'
        for name, text in {
            'model': f'{facts.get("model", "Simulated disk"):40}',
            'serial': f'{facts.get("serial", "SIM0"):20}',
            'firmware_rev': '1.0     ',
            'state': facts.get('state', 'live'),
            'transport': 'pcie',
            'address': function.address,
            'cntlid': '0',
            'numa_node': '-1',
            'subsysnqn': f'nqn.2014.08.org.example:sim{number}',
        }.items():
            self._tree.file(f'{path}/{name}', text)
        self._tree.link(f'class/nvme/nvme{number}', path)
        self._scans[function.address] = -1
        self.scan(function)
        self._tree.emit('add', 'nvme', f'nvme{number}')

    def scan(self, function: Function) -> None:
        """Add the block devices of the namespaces that the kernel has found by now."""
        [controller] = self._tree.path(f'{function.path}/nvme').iterdir()
        self._scans[function.address] += 1
        found = disks(self._tree, function, controller.name)
        for space, use in enumerate(function.facts['nvme'].get('namespaces', [{}]), 1):
            if (
                space not in found
                and not use.get('detached')
                and use.get('late', 0) <= self._scans[function.address]
            ):
                # as in the kernel, this number is the lowest free one and not that of the namespace
                names = (f'{controller.name}n{each}' for each in itertools.count(1))
                found[space] = next(each for each in names if each not in found.values())
                path = f'{function.path}/nvme/{controller.name}/{found[space]}'
                self._disk(function, path, use)
                self._tree.file(f'{path}/nsid', str(space))
        self._write_usage()

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
        self._write_usage()

    def _disk(self, function: Function, path: str, use: Facts) -> None:
        self._block(path)
        parts = [
            f'{path}/{path.rpartition("/")[2]}p{number}'
            for number in range(1, use.get('partitions', 0) + 1)
        ]
        for number, part in enumerate(parts, 1):
            self._block(part)
            self._tree.file(f'{part}/partition', str(number))
        last = (parts or [path])[-1]
        for holder in use.get('holders', ()):
            self._tree.directory(f'{last}/holders/{holder}')
        name, device = last.rpartition('/')[2], self._tree.text(f'{last}/dev')
        if use.get('mounted'):
            self._mounts.setdefault(function.address, []).append(
                f'25 1 {device} / /srv rw - ext4 /dev/{name} rw'
            )
        if use.get('swap'):
            self._swaps.setdefault(function.address, []).append(f'/dev/{name} partition 1024 0 -2')

    def _block(self, path: str) -> None:
        self._tree.file(f'{path}/dev', f'{MAJOR}:{next(self._minors)}')
        self._tree.file(f'{path}/size', '2097152')
        self._tree.directory(f'{path}/holders')
        self._tree.link(f'class/block/{path.rpartition("/")[2]}', path)

    def _write_usage(self) -> None:
        for name, head, table in (
            ('self/mountinfo', [], self._mounts),
            ('swaps', ['Filename Type Size Used Priority'], self._swaps),
        ):
            lines = head + [line for lines in table.values() for line in lines]
            self._tree.file(f'proc/{name}', '\n'.join(lines))


class NvmeCli:
    """Simulates the commands of nvme-cli that drivers run, with its exit status and messages."""

    def __init__(
        self,
        tree: Tree,
        functions: Callable[[], Iterable[Function]],
        scan: Callable[[Function], None],
    ) -> None:
        self._tree = tree
        self._functions = functions
        self._scan = scan
        #: address -> the final state of its sanitize operation, and the reads of the log until then
        self._sanitizing: dict[str, tuple[int, int]] = {}

    def __call__(self, verb: str = '', device: str = '', *options: str) -> str:
        verbs = {
            'format': self._format,
            'sanitize': self._sanitize,
            'id-ctrl': self._identify,
            'list-ns': self._list,
            'sanitize-log': self._log,
        }
        if verb not in verbs:
            raise _failure(1, f"Invalid sub-command '{verb}'")
        place = DEVICE.fullmatch(device)
        function = self._behind(place[1]) if place else None
        if not place or function is None or not self._exists(place):
            raise _failure(2, f'{device}: No such file or directory')
        given = dict(each.removeprefix('--').partition('=')[::2] for each in options)
        with self._tree.change():
            return verbs[verb](function, place[1], place[3], given)

    def _behind(self, controller: str) -> Function | None:
        place = self._tree.real(f'class/nvme/{controller}')
        return next(
            (each for each in self._functions() if place.startswith(f'{each.path}/nvme/')), None
        )

    def _exists(self, place: re.Match[str]) -> bool:
        name = place[0].removeprefix('/dev/')
        kind = 'block' if place[3] else 'nvme'
        return self._tree.path(f'class/{kind}/{name}').exists()

    def _format(
        self, function: Function, controller: str, number: str | None, given: Mapping[str, str]
    ) -> str:
        facts = function.facts['nvme']
        if given.keys() - {'ses', 'force', 'timeout'} or given.get('ses', '0') not in '012':
            raise _failure(BAD_ARGUMENT, 'Invalid argument')
        if not facts.get('formats', True):
            raise _failure(1, UNKNOWN_OPCODE)
        if self._state(function) == RUNNING:
            raise _failure(1, BUSY)
        if 'force' not in given:
            raise _failure(1, 'You are about to format; waiting for somebody to press Ctrl-C')
        concerns_all = facts.get('fna', 0) & (1 if given.get('ses', '0') == '0' else 3)
        if number is None and not concerns_all:
            raise _failure(BAD_ARGUMENT, 'Invalid namespace ID')
        name = f'{controller}n{number}'
        shown = disks(self._tree, function, controller)
        for space, _ in enumerate(namespaces(function), 1):
            if concerns_all or shown.get(space) == name:
                self._erase(function, controller, space)
        return 'Success formatting namespace:1\n'

    def _erase(self, function: Function, controller: str, number: int) -> None:
        space = namespaces(function)[number - 1]
        for trace in ('data', 'partitions'):
            space.pop(trace, None)
        name = disks(self._tree, function, controller).get(number, '')
        disk = self._tree.path(f'{function.path}/nvme/{controller}/{name}')
        for part in disk.glob(f'{name}p*') if name else ():
            self._tree.remove(f'class/block/{part.name}')
            self._tree.remove(f'{self._tree.real(str(disk))}/{part.name}')

    def _sanitize(
        self, function: Function, controller: str, number: str | None, given: Mapping[str, str]
    ) -> str:
        facts = function.facts['nvme']
        if given.keys() - {'sanact'} or given.get('sanact') not in ('2', '3', '4'):
            raise _failure(BAD_ARGUMENT, 'Invalid Sanitize Action')
        if not facts.get('sanitizes', True):
            raise _failure(1, UNKNOWN_OPCODE)
        if self._state(function) == RUNNING:
            raise _failure(1, BUSY)
        end = FAILED if facts.get('sanitize_fails') else DONE
        self._sanitizing[function.address] = end, facts.get('sanitize_reads', 1)
        return ''

    def _state(self, function: Function) -> int:
        end, reads = self._sanitizing.get(function.address, (NEVER, 0))
        return RUNNING if reads else end

    def _log(
        self, function: Function, controller: str, number: str | None, given: Mapping[str, str]
    ) -> str:
        state = self._state(function)
        if state == RUNNING:
            end, reads = self._sanitizing[function.address]
            self._sanitizing[function.address] = end, reads - 1
            for place, _ in enumerate(namespaces(function) if (end, reads) == (DONE, 1) else (), 1):
                self._erase(function, controller, place)
        return json.dumps(
            {
                controller: {
                    'sprog': 655 if state == RUNNING else 65535,
                    'sstat': {
                        'global_erased': int(state == DONE),
                        'no_cmplted_passes': 0,
                        'status': f'({state}) {STATES[state]}',
                    },
                    'cdw10_info': 2,
                }
            }
        )

    def _identify(
        self, function: Function, controller: str, number: str | None, given: Mapping[str, str]
    ) -> str:
        facts = function.facts['nvme']
        return json.dumps(
            {
                'sn': facts.get('serial', 'SIM0'),
                'mn': facts.get('model', ''),
                'oacs': 2 * facts.get('formats', True) + 8 * facts.get('manages', True),
                'fna': facts.get('fna', 0),
            }
        )

    def _list(
        self, function: Function, controller: str, number: str | None, given: Mapping[str, str]
    ) -> str:
        form = given.get('output-format', 'normal')
        if given.keys() - {'all', 'output-format'} or form not in ('normal', 'json'):
            raise _failure(BAD_ARGUMENT, 'Invalid argument')
        if given.get('all'):
            raise _failure(BAD_ARGUMENT, "option '--all' doesn't allow an argument")
        if 'all' in given and not function.facts['nvme'].get('manages', True):
            raise _failure(1, UNKNOWN_FIELD)
        self._scan(function)
        listed = [
            space
            for space, use in enumerate(namespaces(function), 1)
            if 'all' in given or not use.get('detached')
        ]
        if form == 'json':
            return json.dumps({'nsid_list': [{'nsid': space} for space in listed]})
        return ''.join(f'[{place:4}]:{space:#x}\n' for place, space in enumerate(listed))


def _failure(number: int, said: str) -> OSError:
    return OSError(f'nvme ended with {number}: {said}')
