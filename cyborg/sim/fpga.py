# SPDX-License-Identifier: Apache-2.0
"""The attributes that the kernel drivers of FPGAs show: DFL, which is part of the kernel, the older
OPAE driver, and FPGA managers."""

import abc
import errno
import itertools
from collections.abc import Iterator, Sequence

from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.tree import kernel_error

#: the directory of images for the kernel, and the first bytes of an image for a manager
FIRMWARE, SYNC = 'lib/firmware', bytes.fromhex('aa995566')
NOTHING = '0' * 32  #: the afu_id of a port without a function


def _functions(entry: str | Sequence[str]) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry)


def _slots(facts: Facts) -> Iterator[tuple[int, int]]:
    """Yield for each virtual function its region and the index of its function there."""
    for region, entry in enumerate(facts['ports']):
        for order in range(len(_functions(entry))):
            yield region, order


class Fpga(Feature, abc.ABC):
    """A management interface on the card, and a port for each region.

    ``ports`` lists the content of each region: one function, or a list of functions, each of
    which has its own virtual function. If a card has virtual functions, its ports are released
    from the card and appear on these.
    """

    classes: tuple[str, ...] = ()  #: the sysfs classes of its devices

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        #: card and region -> the directories of its functions, by their index in the region
        self._places: dict[tuple[str, int], dict[int, str]] = {}
        #: card and region -> the functions loaded since the host was started
        self._loaded: dict[tuple[str, int], list[str]] = {}
        #: card -> the directory of its management interface
        self._manager_paths: dict[str, str] = {}

    def bind(self, function: Function) -> None:
        card, facts = function.card.address, function.card.facts[self.key]
        base = self._base(function)
        slots = list(_slots(facts))
        if function.parent:
            shown = slots[function.number : function.number + 1]
        else:
            self._manager_paths[card] = self._show_manager(base, facts)
            # the others can be reached through virtual functions only
            shown = [] if 'sriov' in function.facts else [each for each in slots if not each[1]]
        for region, order in shown:
            port = self._port(base)
            self._tree.file(f'{port}/id', str(region))
            self._places.setdefault((card, region), {})[order] = port
            self._show(
                card, region, self._loaded.get((card, region)) or _functions(facts['ports'][region])
            )

    def unbind(self, function: Function) -> None:
        inside = self._tree.path(function.path)
        for kind in self.classes:
            for link in self._tree.path(f'class/{kind}').glob('*'):
                if not link.resolve().exists() or link.resolve().is_relative_to(inside):
                    self._tree.remove(f'class/{kind}/{link.name}')
        self._tree.remove(f'{function.path}/{self.classes[0]}')
        for places in self._places.values():
            for order in [
                each for each, path in places.items() if path.startswith(f'{function.path}/')
            ]:
                del places[order]
        if not function.parent:
            self._manager_paths.pop(function.address, None)

    def check_vfs(self, function: Function, count: int) -> None:
        if not function.parent and count != len(list(_slots(function.facts[self.key]))):
            raise kernel_error(errno.EINVAL)

    def holds(self, address: str, number: int) -> bool:
        """Return whether this driver shows that region."""
        return bool(self._places.get((address, number)))

    def manager(self, address: str) -> str | None:
        """Return the name of a card's management interface; None if the driver is not bound."""
        path = self._manager_paths.get(address)
        return path.rpartition('/')[2] if path else None

    def managed_by(self, name: str) -> str | None:
        """Return the address of the card with this management interface."""
        return next(
            (address for address in self._manager_paths if self.manager(address) == name), None
        )

    def region_type(self, address: str) -> str:
        """Return the id that an image must have to fit."""
        path = self._manager_paths[address]
        [found] = [
            text
            for pattern in ('pr/interface_id', '*/fpga_region/*/compat_id')
            for text in {file.read_text().strip() for file in self._tree.path(path).glob(pattern)}
        ]
        return found

    def program(self, address: str, number: int, functions: str | Sequence[str]) -> None:
        """Replace the functions of a region as a bitstream does. The kernel emits no event."""
        with self._tree.change():
            self._loaded[address, number] = _functions(functions)
            self._show(address, number, _functions(functions))

    def lose_power(self, address: str) -> None:
        """Forget the functions that were loaded into a card."""
        for place in [each for each in self._loaded if each[0] == address]:
            del self._loaded[place]

    def _show(self, address: str, region: int, functions: Sequence[str]) -> None:
        for order, port in self._places[address, region].items():
            shown = functions[order] if order < len(functions) else NOTHING
            self._tree.file(f'{port}/afu_id', shown.replace('-', ''))

    @abc.abstractmethod
    def _base(self, function: Function) -> str:
        """Create and return the directory of the function's attributes."""

    @abc.abstractmethod
    def _show_manager(self, base: str, facts: Facts) -> str:
        """Create the management interface and return its directory."""

    @abc.abstractmethod
    def _port(self, base: str) -> str:
        """Return the directory of the next port."""

    def _describe(self, manager: str, facts: Facts) -> None:
        self._tree.file(f'{manager}/ports_num', str(len(facts['ports'])))
        self._tree.file(f'{manager}/bitstream_id', facts['shell'])
        self._tree.file(f'{manager}/bitstream_metadata', '0x0')


class Dfl(Fpga):
    """The driver that is part of the kernel."""

    key = 'dfl'
    classes = ('fpga_region', 'fpga_manager', 'fpga_bridge')

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._numbers = {kind: itertools.count() for kind in (*self.classes, 'fme', 'port')}
        self._parts = itertools.count()

    def _base(self, function: Function) -> str:
        return self._listed(function.path, 'fpga_region', 'region')

    def _show_manager(self, base: str, facts: Facts) -> str:
        manager = f'{base}/dfl-fme.{next(self._numbers["fme"])}'
        self._describe(manager, facts)
        for name in ('cache_size', 'fabric_version', 'socket_id'):
            self._tree.file(f'{manager}/{name}', '0')
        loader = self._listed(f'{manager}/dfl-fme-mgr.{next(self._parts)}', 'fpga_manager', 'fpga')
        self._tell(loader, 'DFL FME FPGA Manager', 'unknown')
        for _ in facts['ports']:
            part = next(self._parts)  # the bridge and the region of a port share a number
            bridge = self._listed(f'{manager}/dfl-fme-br.{part}', 'fpga_bridge', 'br')
            self._tell(bridge, 'DFL FPGA FME Bridge', 'enabled')
            region = self._listed(f'{manager}/dfl-fme-region.{part}', 'fpga_region', 'region')
            self._tree.file(f'{region}/compat_id', facts['region_type'].replace('-', ''))
        return manager

    def _port(self, base: str) -> str:
        port = f'{base}/dfl-port.{next(self._numbers["port"])}'
        self._tree.file(f'{port}/power_state', '0')
        return port

    def _listed(self, parent: str, kind: str, prefix: str) -> str:
        """Create a device of a class; the kernel numbers them host-wide."""
        name = f'{prefix}{next(self._numbers[kind])}'
        while self._tree.path(f'class/{kind}/{name}').is_symlink():
            name = f'{prefix}{next(self._numbers[kind])}'
        path = f'{parent}/{kind}/{name}'
        self._tree.directory(path)
        self._tree.link(f'class/{kind}/{name}', path)
        if kind == self.classes[0]:  # no driver of Cyborg subscribes to the others
            self._tree.emit('add', kind, name)
        return path

    def _tell(self, device: str, name: str, state: str) -> None:
        self._tree.file(f'{device}/name', name)
        self._tree.file(f'{device}/state', state)


class Opae(Fpga):
    """The older driver, which has other names for the same attributes."""

    key = 'opae'
    classes = ('fpga',)

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        # each has its own numbers
        self._devices, self._managers, self._ports = (itertools.count() for _ in range(3))

    def _base(self, function: Function) -> str:
        name = f'intel-fpga-dev.{next(self._devices)}'
        base = f'{function.path}/fpga/{name}'
        self._tree.directory(base)
        self._tree.link(f'{base}/device', function.path)
        self._tree.link(f'class/fpga/{name}', base)
        self._tree.emit('add', 'fpga', name)
        return base

    def _show_manager(self, base: str, facts: Facts) -> str:
        manager = f'{base}/intel-fpga-fme.{next(self._managers)}'
        self._describe(manager, facts)
        self._tree.file(f'{manager}/pr/interface_id', facts['region_type'].replace('-', ''))
        return manager

    def _port(self, base: str) -> str:
        return f'{base}/intel-fpga-port.{next(self._ports)}'


class FpgaManager(Feature):
    """The kernel's FPGA manager of a card. Vendors' kernels have a ``firmware`` file that loads an
    image; with the fact ``firmware: false`` it is missing, as in mainline kernels."""

    key = 'fpga_manager'

    def bind(self, function: Function) -> None:
        number = next(
            each
            for each in itertools.count()
            if not self._tree.path(f'class/fpga_manager/fpga{each}').is_symlink()
        )
        path = f'{function.path}/fpga_manager/fpga{number}'
        self._tree.file(f'{path}/name', 'Simulated FPGA Manager')
        self._tree.file(f'{path}/state', 'operating')
        if (function.facts[self.key] or {}).get('firmware', True):
            self._tree.file(f'{path}/flags', '0', lambda text: self._set_flags(path, text))
            self._tree.trigger(f'{path}/firmware', lambda text: self._load(path, text))
        self._tree.link(f'class/fpga_manager/fpga{number}', path)

    def unbind(self, function: Function) -> None:
        for node in self._tree.path(f'{function.path}/fpga_manager').iterdir():
            self._tree.remove(f'class/fpga_manager/{node.name}')
        self._tree.remove(f'{function.path}/fpga_manager')

    def _set_flags(self, path: str, text: str) -> None:
        if not text.isdecimal():
            raise kernel_error(errno.EINVAL)
        self._tree.set_text(f'{path}/flags', text)

    def _load(self, path: str, name: str) -> None:
        """Load an image, which the kernel searches in the firmware directory only."""
        image = self._tree.path(FIRMWARE) / name
        step, number = 'operating', 0
        if '/' in name or not image.is_file():
            step, number = 'firmware request error', errno.ENOENT
        elif image.read_bytes()[:4] != SYNC:
            step, number = 'write error', errno.ETIMEDOUT  # the card never reports that it is done
        self._tree.set_text(f'{path}/state', step)
        if number:
            raise kernel_error(number)
