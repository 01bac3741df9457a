# SPDX-License-Identifier: Apache-2.0
"""A stand-in for nvme-cli on simulated disks, and what guests write to these.

The fact ``nvme`` of a card may say ``formats: false`` (it knows no format), ``fna`` (what a format
concerns), ``sanitizes: false``, ``sanitize_reads`` (how often the log is read until a sanitize
operation is over) and ``sanitize_fails``.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping

from cyborg.sim.bus import Facts, Function
from cyborg.sim.tree import Tree

NEVER, DONE, RUNNING, FAILED = range(4)
STATES = ('NVM Subsystem has never been sanitized.',
          'Most Recent Sanitize Command Completed Successfully.',
          'Sanitize in Progress.', 'Most Recent Sanitize Command Failed.')
DEVICE = re.compile(r'/dev/(nvme\d+)(n(\d+))?')
UNKNOWN_OPCODE = 'NVMe status: Invalid Command Opcode: A reserved coded value(0x4001)'
BUSY = 'NVMe status: Sanitize In Progress: The requested function is prohibited(0x401d)'
BAD_ARGUMENT = 22


def namespaces(function: Function) -> list[Facts]:
    """Those of a disk, as its driver shows them; none if it is no disk."""
    facts = function.facts.get('nvme')
    return [] if facts is None else facts.setdefault('namespaces', [{}])


def soil(function: Function) -> None:
    """A guest divides all namespaces and writes to them."""
    for space in namespaces(function):
        space.update(data='guest', partitions=1)


def traces(function: Function) -> list[str]:
    """The namespaces that hold what a guest wrote."""
    return [f'namespace {number}' for number, space in enumerate(namespaces(function), 1)
            if 'data' in space]


class NvmeCli:
    """Does what the tool does, and fails as it fails: with its number and its words."""

    def __init__(self, tree: Tree, functions: Callable[[], Iterable[Function]]) -> None:
        self._tree = tree
        self._functions = functions
        #: address -> the state of its sanitize operation, and how often that is still read
        self._sanitizing: dict[str, tuple[int, int]] = {}

    def __call__(self, verb: str = '', device: str = '', *options: str) -> str:
        verbs = {'format': self._format, 'sanitize': self._sanitize, 'id-ctrl': self._identify,
                 'sanitize-log': self._log}
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
        return next((each for each in self._functions()
                     if place.startswith(f'{each.path}/nvme/')), None)

    def _exists(self, place: re.Match[str]) -> bool:
        name = place[0].removeprefix('/dev/')
        kind = 'block' if place[3] else 'nvme'
        return self._tree.path(f'class/{kind}/{name}').exists()

    def _format(self, function: Function, controller: str, number: str | None,
                given: Mapping[str, str]) -> str:
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
        spaces = namespaces(function)
        for place in (range(1, len(spaces) + 1) if concerns_all or number is None
                      else [int(number)]):
            self._erase(function, controller, place)
        return 'Success formatting namespace:1\n'

    def _erase(self, function: Function, controller: str, number: int) -> None:
        space = namespaces(function)[number - 1]
        for trace in ('data', 'partitions'):
            space.pop(trace, None)
        disk = self._tree.path(f'{function.path}/nvme/{controller}/{controller}n{number}')
        for part in disk.glob(f'{disk.name}p*'):
            self._tree.remove(f'class/block/{part.name}')
            self._tree.remove(f'{self._tree.real(str(disk))}/{part.name}')

    def _sanitize(self, function: Function, controller: str, number: str | None,
                  given: Mapping[str, str]) -> str:
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

    def _log(self, function: Function, controller: str, number: str | None,
             given: Mapping[str, str]) -> str:
        state = self._state(function)
        if state == RUNNING:
            end, reads = self._sanitizing[function.address]
            self._sanitizing[function.address] = end, reads - 1
            for place, _ in enumerate(namespaces(function) if (end, reads) == (DONE, 1) else (),
                                      1):
                self._erase(function, controller, place)
        return json.dumps({controller: {
            'sprog': 655 if state == RUNNING else 65535,
            'sstat': {'global_erased': int(state == DONE), 'no_cmplted_passes': 0,
                      'status': f'({state}) {STATES[state]}'},
            'cdw10_info': 2}})

    def _identify(self, function: Function, controller: str, number: str | None,
                  given: Mapping[str, str]) -> str:
        facts = function.facts['nvme']
        return json.dumps({'sn': facts.get('serial', 'SIM0'), 'mn': facts.get('model', ''),
                           'oacs': 2 if facts.get('formats', True) else 0,
                           'fna': facts.get('fna', 0)})


def _failure(number: int, said: str) -> OSError:
    return OSError(f'nvme ended with {number}: {said}')
