# SPDX-License-Identifier: Apache-2.0
"""A simulated PCI bus: functions, the drivers they are bound to, and their virtual functions."""

import dataclasses
import errno
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cyborg.accelerator import pci
from cyborg.sim import pci_attributes, resets
from cyborg.sim.attribute_values import parse_bool, parse_unsigned
from cyborg.sim.overlay import Overlay
from cyborg.sim.tree import Tree, kernel_error

DEVICES = 'bus/pci/devices'
DRIVERS = 'bus/pci/drivers'
GROUPS = 'kernel/iommu_groups'
#: The bridge above each card. Accelerator drivers must ignore it.
PORT = {'vendor': '8086', 'device': '347a', 'class': '060400', 'driver': 'pcieport'}

Facts = dict[str, Any]  #: an entry of the catalogue


@dataclasses.dataclass(eq=False)
class Function:
    """A PCI function that is present on the bus."""

    address: str
    facts: Facts
    path: str  #: its real directory
    parent: 'Function | None' = None  #: the physical function of a virtual one
    number: int = 0  #: the index of a virtual function
    group: str | None = None
    driver: str | None = None
    override: str | None = None
    is_dirty: bool = False  #: a guest wrote to its registers and it has not been reset since
    parts: list['Function'] = dataclasses.field(default_factory=list)

    @property
    def card(self) -> 'Function':
        return self.parent or self


class Feature:
    """Attributes that a simulated kernel driver shows on a function while it is bound."""

    key = ''  #: the key of its facts in the catalogue

    def __init__(self, bus: 'Bus') -> None:
        self._tree = bus.tree

    def bind(self, function: Function) -> None:
        """Show the attributes."""

    def unbind(self, function: Function) -> None:
        """Remove the attributes."""

    def check_driver(self, function: Function, driver: str) -> None:
        """Raise an OSError if another driver cannot be bound to such a function."""

    def check_vfs(self, function: Function, count: int) -> None:
        """Raise an OSError if the driver does not allow this number of virtual functions."""

    @staticmethod
    def recorded(function: pci.Function) -> Facts | None:
        """Return the facts that describe these attributes of a real function, or None if it has
        none. Without this method a recording holds plain copies of the files."""
        return None


class Bus:
    """The PCI functions of a host."""

    def __init__(
        self,
        tree: Tree,
        make_features: Callable[['Bus'], Iterable[Feature]],
        groups: Mapping[str, str] | None = None,
        overlay: Overlay | None = None,
    ) -> None:
        """``groups`` holds IOMMU groups by address; any other function gets its own group."""
        self.tree = tree
        self.functions: dict[str, Function] = {}
        self._groups = groups or {}
        self._overlay = overlay or Overlay(tree)
        self._numbers = itertools.count(1)
        self._features = {feature.key: feature for feature in make_features(self)}
        self._drivers: set[str] = set()
        tree.directory(DEVICES)
        tree.trigger('bus/pci/drivers_probe', lambda text: self._probe(self._known(text)))
        for name in ('vfio-pci', 'pcieport'):
            self._driver(name)

    def add(self, address: str, facts: Facts) -> Function:
        """Add a card, behind a bridge of its own."""
        domain, number, _ = address.split(':')
        if address in self.functions:
            raise ValueError(f'{address} is the address of the bridge above another card')
        root = f'{domain}:{max(int(number, 16) - 1, 0):02x}'
        port = f'{root}:1c.0'
        if port not in self.functions:
            bridge = Function(port, PORT, f'devices/pci{root}/{port}')
            self._appear(bridge)
            self._probe(bridge)
        function = Function(address, facts, f'devices/pci{root}/{port}/{address}')
        self._appear(function)
        self._probe(function)
        if count := facts.get('sriov', {}).get('enabled', 0):
            self._set_vfs(function, count)
        return function

    def remove(self, function: Function) -> None:
        """Remove a function, also if it is in use."""
        self._set_vfs(function, 0)
        self._unbind(function)
        self._overlay.hide(function.address)
        for name in (f'{DEVICES}/{function.address}', function.path):
            self.tree.remove(name)
        del self.functions[function.address]
        if function.group:
            group = f'{GROUPS}/{function.group}'
            self.tree.remove(f'{group}/devices/{function.address}')
            if not any(each.group == function.group for each in self.functions.values()):
                self.tree.remove(group)
        self.tree.emit('remove', 'pci', function.address)

    def join_group(self, path: str, group: str | None = None) -> str:
        """Put a device into an IOMMU group, by default a new one; returns the group's number."""
        group = group or next(
            number for number in map(str, self._numbers) if number not in self._groups.values()
        )
        self.tree.link(f'{GROUPS}/{group}/devices/{path.rpartition("/")[2]}', path)
        self.tree.link(f'{path}/iommu_group', f'{GROUPS}/{group}')
        return group

    def rebind(self, address: str, driver: str | None) -> None:
        """Bind another driver, or none, to a function, as an administrator does by hand."""
        function = self._known(address)
        self._set_vfs(function, 0)
        self._unbind(function)
        self._override(function, driver or '')
        if driver:
            self._probe(function)

    def release(self, address: str) -> None:
        """Bind a function to its default driver again."""
        function = self._known(address)
        self._unbind(function)
        self._override(function, '')
        self._probe(function)

    # -- a function and its attributes -----------------------------------------------------

    def _appear(self, function: Function) -> None:
        facts, path = function.facts, function.path
        for name, text in pci_attributes.attributes(facts).items():
            self.tree.file(f'{path}/{name}', text)
        self.tree.file(
            f'{path}/config',
            pci_attributes.config(function.address, facts, function.parent is not None),
        )
        self.tree.file(
            f'{path}/driver_override', '(null)', lambda text: self._override(function, text)
        )
        if not function.parent:  # a virtual one is removed through sriov_numvfs only
            self.tree.trigger(
                f'{path}/remove', lambda text: self._remove_if(function, text), mode=0o220
            )
        self.tree.link(f'{path}/subsystem', 'bus/pci')
        resets.offer(self.tree, function)
        if facts.get('iommu', True):
            function.group = self.join_group(path, self._groups.get(function.address))
        for name, text in facts.get('attributes', {}).items():
            self.tree.file(f'{path}/{name}', str(text))
        if facts.get('sriov', {}).get('total'):
            self._offer_vfs(function)
        if function.parent:
            self.tree.link(f'{path}/physfn', function.parent.path)
            self.tree.trigger(f'{path}/sriov_vf_msix_count', _refuse_msix_count)
        self._describe(function)
        self.functions[function.address] = function
        # last, so that a reader that lists the bus finds complete functions only
        self.tree.link(f'{DEVICES}/{function.address}', path)
        self._overlay.show(function.address)
        self.tree.emit('add', 'pci', function.address)

    def _describe(self, function: Function) -> None:
        facts = function.facts
        lines = [f'DRIVER={function.driver}'] if function.driver else []
        lines += pci_attributes.uevent(function.address, facts)
        self.tree.file(
            f'{function.path}/uevent',
            '\n'.join(lines),
            lambda text: self.tree.synthesize(text, 'pci', function.address),
        )

    def _override(self, function: Function, text: str) -> None:
        function.override = text or None
        self.tree.file(f'{function.path}/driver_override', text or '(null)')

    def _remove_if(self, function: Function, text: str) -> None:
        if parse_unsigned(text):
            self.remove(function)

    # -- binding ---------------------------------------------------------------------------

    def _driver(self, name: str) -> None:
        if name not in self._drivers:
            self._drivers.add(name)
            path = f'{DRIVERS}/{name}'
            self.tree.trigger(f'{path}/bind', lambda text: self._bind_by_hand(name, text))
            self.tree.trigger(f'{path}/unbind', lambda text: self._unbind_by_hand(name, text))

    def _known(self, address: str) -> Function:
        if address not in self.functions:
            raise kernel_error(errno.ENODEV)
        return self.functions[address]

    def _bind_by_hand(self, driver: str, address: str) -> None:
        function = self._known(address)
        if driver != (function.override or function.facts.get('driver')):
            raise kernel_error(errno.ENODEV)
        if function.driver:
            raise kernel_error(errno.EBUSY)
        self._probe(function)

    def _unbind_by_hand(self, driver: str, address: str) -> None:
        function = self._known(address)
        if function.driver != driver:
            raise kernel_error(errno.ENODEV)
        self._set_vfs(function, 0)
        self._unbind(function)

    def _probe(self, function: Function) -> None:
        """Bind the driver that claims an unbound function."""
        driver = function.override or function.facts.get('driver')
        if function.driver or not driver or not (function.override or self._is_probed(function)):
            return
        for key in self._features.keys() & function.facts.keys():
            self._features[key].check_driver(function, driver)
        self._driver(driver)
        function.driver = driver
        self.tree.link(f'{function.path}/driver', f'{DRIVERS}/{driver}')
        self.tree.link(f'{DRIVERS}/{driver}/{function.address}', function.path)
        self._describe(function)
        for feature in self._active(function):
            feature.bind(function)
        self._overlay.show(function.address)
        self.tree.emit('bind', 'pci', function.address)

    def _is_probed(self, function: Function) -> bool:
        """Return whether a driver is bound automatically: sriov_drivers_autoprobe prevents it."""
        return (
            not function.parent
            or self.tree.text(f'{function.parent.path}/sriov_drivers_autoprobe') == '1'
        )

    def _unbind(self, function: Function) -> None:
        if function.driver:
            for feature in self._active(function):
                feature.unbind(function)
            self.tree.remove(f'{DRIVERS}/{function.driver}/{function.address}')
            self.tree.remove(f'{function.path}/driver')
            function.driver = None
            self._describe(function)
            self.tree.emit('unbind', 'pci', function.address)

    def _active(self, function: Function) -> list[Feature]:
        """Return the features that the bound driver shows; vfio-pci, for example, shows none."""
        if function.driver != function.facts.get('driver'):
            return []
        return [feature for key, feature in self._features.items() if key in function.facts]

    # -- virtual functions -----------------------------------------------------------------

    def _offer_vfs(self, function: Function) -> None:
        sriov = function.facts['sriov']
        for name, value in {
            'sriov_totalvfs': sriov['total'],
            'sriov_offset': sriov['offset'],
            'sriov_stride': sriov.get('stride', 1),
            'sriov_vf_total_msix': 0,
            'sriov_vf_device': f'{int(sriov["vf"]["device"], 16):x}',
        }.items():
            self.tree.file(f'{function.path}/{name}', str(value))
        autoprobe = f'{function.path}/sriov_drivers_autoprobe'
        self.tree.file(autoprobe, '1', lambda text: self.tree.file(autoprobe, parse_bool(text)))
        self.tree.file(
            f'{function.path}/sriov_numvfs', '0', lambda text: self._write_numvfs(function, text)
        )

    def _write_numvfs(self, function: Function, text: str) -> None:
        count = parse_unsigned(text)
        if count > 0xFFFF:
            raise kernel_error(errno.EINVAL)
        if count > function.facts['sriov']['total']:
            raise kernel_error(errno.ERANGE)
        if count == len(function.parts):
            return
        if function.driver != function.facts.get('driver'):
            raise kernel_error(errno.ENOENT)
        if count and function.parts:
            raise kernel_error(errno.EBUSY)
        self._set_vfs(function, count)

    def _set_vfs(self, function: Function, count: int) -> None:
        for feature in self._active(function) if count else ():
            feature.check_vfs(function, count)
        for part in function.parts:
            self.tree.remove(f'{function.path}/virtfn{part.number}')
            self.remove(part)
        function.parts = []
        for number in range(count):
            function.parts.append(self._add_vf(function, number))
        for part in function.parts:
            self.tree.link(f'{function.path}/virtfn{part.number}', part.path)
        if function.facts.get('sriov', {}).get('total'):
            self.tree.file(f'{function.path}/sriov_numvfs', str(count))
        if count:  # the kernel emits no event of the card when they are removed
            self.tree.emit('change', 'pci', function.address)

    def _add_vf(self, function: Function, number: int) -> Function:
        sriov = function.facts['sriov']
        address = _offset_address(
            function.address, sriov['offset'] + number * sriov.get('stride', 1)
        )
        shared = {
            key: function.facts[key]
            for key in ('vendor', 'class', 'numa_node', 'iommu')
            if key in function.facts
        }
        part = Function(
            address,
            shared | sriov['vf'],
            function.path.rpartition('/')[0] + f'/{address}',
            function,
            number,
        )
        self._appear(part)
        self.tree.emit('change', 'pci', address)
        self._probe(part)
        return part


def _refuse_msix_count(text: str) -> None:
    """Most kernel drivers do not let the MSI-X vectors of a virtual function be changed."""
    parse_unsigned(text)
    raise kernel_error(errno.EOPNOTSUPP)


def _offset_address(address: str, offset: int) -> str:
    """Return the PCI address whose routing id is larger by the offset."""
    domain, bus, rest = address.split(':')
    device, function = rest.split('.')
    routing_id = (int(bus, 16) << 8) + (int(device, 16) << 3) + int(function) + offset
    return f'{domain}:{routing_id >> 8:02x}:{routing_id >> 3 & 0x1F:02x}.{routing_id & 7}'
