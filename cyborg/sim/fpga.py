# SPDX-License-Identifier: Apache-2.0
"""What the drivers of FPGAs show: the kernel's own (DFL), and the older one beside it (OPAE)."""

import abc
import errno
import itertools
from collections.abc import Iterator

from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import refuse


class Fpga(Feature, abc.ABC):
    """Management on the card, a port a region.

    ``ports`` lists what each region is programmed with. The ports of a card with virtual
    functions are released, and sit on these.
    """

    classes: tuple[str, ...] = ()  #: in which its devices are listed

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._places: dict[tuple[str, int], str] = {}

    def bind(self, function: Function) -> None:
        facts = function.card.facts[self.key]
        base = self._base(function)
        if function.parent:
            numbers: Iterator[int] = iter([function.number])
        else:
            self._show_manager(base, facts)
            numbers = iter(range(len(facts['ports']) if 'sriov' not in function.facts else 0))
        for number in numbers:
            port = self._port(base)
            self._tree.file(f'{port}/id', str(number))
            self._tree.file(f'{port}/afu_id', facts['ports'][number].replace('-', ''))
            self._places[function.card.address, number] = port

    def unbind(self, function: Function) -> None:
        inside = self._tree.path(function.path)
        for kind in self.classes:
            for link in self._tree.path(f'class/{kind}').glob('*'):
                if not link.resolve().exists() or link.resolve().is_relative_to(inside):
                    self._tree.remove(f'class/{kind}/{link.name}')
        self._tree.remove(f'{function.path}/{self.classes[0]}')
        for place in [each for each, path in self._places.items()
                      if path.startswith(f'{function.path}/')]:
            del self._places[place]

    def check_vfs(self, function: Function, count: int) -> None:
        if not function.parent and count != len(function.facts[self.key]['ports']):
            raise refuse(errno.EINVAL)

    def holds(self, address: str, number: int) -> bool:
        """Is that region one of ours?"""
        return (address, number) in self._places

    def program(self, address: str, number: int, programmed: str) -> None:
        """Have another function in a region: what a bitstream does, of which no event tells."""
        with self._tree.change():
            self._tree.file(f'{self._places[address, number]}/afu_id',
                            programmed.replace('-', ''))

    @abc.abstractmethod
    def _base(self, function: Function) -> str:
        """The directory of all that is shown, which is made."""

    @abc.abstractmethod
    def _show_manager(self, base: str, facts: Facts) -> None:
        """Show what only the card itself has."""

    @abc.abstractmethod
    def _port(self, base: str) -> str:
        """The directory of the next port."""

    def _describe(self, manager: str, facts: Facts) -> None:
        self._tree.file(f'{manager}/ports_num', str(len(facts['ports'])))
        self._tree.file(f'{manager}/bitstream_id', facts['shell'])
        self._tree.file(f'{manager}/bitstream_metadata', '0x0')


class Dfl(Fpga):
    """The kernel's own."""

    key = 'dfl'
    classes = ('fpga_region', 'fpga_manager', 'fpga_bridge')

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._numbers = {kind: itertools.count() for kind in (*self.classes, 'fme', 'port')}
        self._parts = itertools.count()

    def _base(self, function: Function) -> str:
        return self._listed(function.path, 'fpga_region', 'region')

    def _show_manager(self, base: str, facts: Facts) -> None:
        manager = f'{base}/dfl-fme.{next(self._numbers["fme"])}'
        self._describe(manager, facts)
        for name in ('cache_size', 'fabric_version', 'socket_id'):
            self._tree.file(f'{manager}/{name}', '0')
        loader = self._listed(f'{manager}/dfl-fme-mgr.{next(self._parts)}', 'fpga_manager', 'fpga')
        self._tell(loader, 'DFL FME FPGA Manager', 'unknown')
        for _ in facts['ports']:
            part = next(self._parts)  # of the bridge and the region of one port
            bridge = self._listed(f'{manager}/dfl-fme-br.{part}', 'fpga_bridge', 'br')
            self._tell(bridge, 'DFL FPGA FME Bridge', 'enabled')
            region = self._listed(f'{manager}/dfl-fme-region.{part}', 'fpga_region', 'region')
            self._tree.file(f'{region}/compat_id', facts['region_type'].replace('-', ''))

    def _port(self, base: str) -> str:
        port = f'{base}/dfl-port.{next(self._numbers["port"])}'
        self._tree.file(f'{port}/power_state', '0')
        return port

    def _listed(self, parent: str, kind: str, prefix: str) -> str:
        """A device of a class; the kernel counts them host-wide."""
        name = f'{prefix}{next(self._numbers[kind])}'
        path = f'{parent}/{kind}/{name}'
        self._tree.directory(path)
        self._tree.link(f'class/{kind}/{name}', path)
        if kind == self.classes[0]:  # the others matter to nobody who listens
            self._tree.emit('add', kind, name)
        return path

    def _tell(self, device: str, name: str, state: str) -> None:
        self._tree.file(f'{device}/name', name)
        self._tree.file(f'{device}/state', state)


class Opae(Fpga):
    """The older one: other names for the same things."""

    key = 'opae'
    classes = ('fpga',)

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        # each is counted by itself
        self._devices, self._managers, self._ports = (itertools.count() for _ in range(3))

    def _base(self, function: Function) -> str:
        name = f'intel-fpga-dev.{next(self._devices)}'
        base = f'{function.path}/fpga/{name}'
        self._tree.directory(base)
        self._tree.link(f'{base}/device', function.path)
        self._tree.link(f'class/fpga/{name}', base)
        self._tree.emit('add', 'fpga', name)
        return base

    def _show_manager(self, base: str, facts: Facts) -> None:
        manager = f'{base}/intel-fpga-fme.{next(self._managers)}'
        self._describe(manager, facts)
        self._tree.file(f'{manager}/pr/interface_id', facts['region_type'].replace('-', ''))

    def _port(self, base: str) -> str:
        return f'{base}/intel-fpga-port.{next(self._ports)}'
