# SPDX-License-Identifier: Apache-2.0
"""Records what drivers read on a host as a description of a host that looks the same."""

import collections
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oslo_log import log

from cyborg import errors
from cyborg.accelerator import host_usage, mdev, pci
from cyborg.accelerator.driver import Driver
from cyborg.accelerator.sysfs import Node, Sysfs
from cyborg.sim import catalogue
from cyborg.sim.bus import Facts
from cyborg.sim.host import FEATURES, Host
from cyborg.sim.overlay import owner
from cyborg.sim.tree import scratch_directory
from cyborg.sim.watch import watch

LOG = log.getLogger(__name__)

BRIDGE = '06'  #: not recorded, since the simulator creates its own bridges
#: Names of files whose content identifies one card.
SERIAL = re.compile(r'serial|vpd|wwid|nguid|eui|unique_id|(^|/)address$', re.IGNORECASE)
SHORTEST_SERIAL = 4
ATTEMPTS = 5  #: before recording a host that keeps changing is given up
POOL = re.compile('fs/btrfs/([^/]{8,})/')  #: the uuid of a file system, in a path
BLOCKS, MOUNTS = 'class/block', 'proc/self/mountinfo'

State = tuple[str, str]  #: 'text', 'link' or 'directory', and the content or target


class Accesses:
    """The names that drivers accessed, without links in the path. The name of a file of a function
    starts with ``bus/pci/devices/<address>``."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self.names: dict[
            str, bool
        ] = {}  #: name -> whether it was used; otherwise it was only listed

    def note(self, path: Path, is_used: bool) -> None:
        """Add a path, and all links that lead to it."""
        try:
            parts = path.relative_to(self._root).parts
        except ValueError:
            return
        here = self._root
        for part in parts:
            here = here / part
            if here.is_symlink():
                self._add(here, is_used)
                here = Path(_real(here))
                if not here.is_relative_to(self._root):
                    return
        self._add(here, is_used)

    def _add(self, path: Path, is_used: bool) -> None:
        name = self.name(path)
        self.names[name] = self.names.get(name, False) or is_used

    def name(self, path: Path) -> str:
        relative = path.relative_to(self._root)
        for above in (relative, *relative.parents):
            function = f'{pci.DEVICES}/{above.name}'
            if (
                pci.ADDRESS.fullmatch(above.name)
                and above.parts[0] == 'devices'
                and _real(self._root / function) == str(self._root / above)
            ):
                return os.path.normpath(f'{function}/{relative.relative_to(above)}')
        return str(relative)

    def has(self, address: str | None) -> bool:
        """Return whether the function exists; True without an address."""
        return address is None or (self._root / pci.DEVICES / address).exists()

    def state(self, name: str, is_used: bool = True) -> State | None:
        """Return the state of a file; None if it does not exist or cannot be read."""
        path = self._root / name
        if path.is_symlink() and name != f'{pci.DEVICES}/{owner(name)}':
            target = Path(_real(path))
            is_inside = target.is_relative_to(self._root)
            return ('link', self.name(target)) if is_inside else None
        if path.is_dir():
            return 'directory', ''
        text = Node(path, Sysfs(self._root)).read() if is_used else ''
        return ('text', text) if path.exists() and text is not None else None


def _real(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # the link was removed while it was read
        return str(path)


def bound_drivers(sysfs: Sysfs) -> dict[str, str]:
    """Return the devices of every bus, and the driver that is bound to each."""
    return {
        f'{device.path.parent.parent.name}/{device.name}': getattr(
            device.link('driver'), 'name', ''
        )
        for device in sysfs.children('bus/*/devices/*')
    }


def record(sysfs: Sysfs, drivers: Iterable[Driver], with_serials: bool = False) -> Facts:
    """Return the description of a host that looks the same as this one to these drivers.

    If a device is added or removed meanwhile, the description may be inconsistent, so the host
    is recorded again.
    """
    drivers = list(drivers)
    for _ in range(ATTEMPTS):
        before = bound_drivers(sysfs)
        try:
            facts = _record(sysfs, drivers, with_serials)
        except Exception:
            if bound_drivers(sysfs) == before:
                raise
        else:
            if bound_drivers(sysfs) == before:
                return facts
    raise errors.ConfigError(why='The host changes faster than it can be recorded.')


def _record(sysfs: Sysfs, drivers: Iterable[Driver], with_serials: bool) -> Facts:
    accesses = Accesses(sysfs.path)
    seen = watch(sysfs, accesses.note)
    for each in drivers:
        try:
            collections.deque(type(each)(each.conf, seen).discover(), maxlen=0)
        except Exception as error:  # a failure of one driver does not affect the others
            LOG.warning('Driver %s failed to discover devices: %s', each.name, error)
    facts = _model(sysfs)
    files, links = _differences(accesses, facts)
    files |= _mounts(sysfs, accesses)
    if not with_serials:
        files, links = _anonymize(files, links)
    return {key: fact for key, fact in (facts | {'files': files, 'links': links}).items() if fact}


def _model(sysfs: Sysfs) -> Facts:
    """Return the facts that the simulator models, so that writes have effects."""
    functions = [
        each
        for each in pci.functions(sysfs)
        if each.vendor and not each.class_code.startswith(BRIDGE)
    ]
    cards = {each.address: _card(each) for each in functions if not each.is_virtual}
    bound = {
        part.address: part.driver
        for each in functions
        for part in each.virtual_functions.values()
        if part.driver != cards[each.address]['sriov']['vf'].get('driver')
    }
    return {
        'cards': list(cards.values()),
        'groups': {
            each.address: int(group)
            for each in functions
            if (group := each.iommu_group or '').isdecimal()
        },
        'bound': bound,
        'mediated': {
            uuid: {'at': each.address, 'type': name}
            for each in functions
            for name, kind in mdev.types(each).items()
            if _is_simulated(each)
            for uuid in kind.instances
        },
    }


def _card(function: pci.Function) -> Facts:
    names = catalogue.models()
    facts = {
        'at': function.address,
        'name': names.get(f'{function.vendor}:{function.device}', f'Card {function.device}'),
        'vendor': function.vendor,
        **_identity(function),
        'numa_node': function.numa_node,
        'iommu': function.iommu_group is not None,
    }
    if total := function.number('sriov_totalvfs'):
        facts['sriov'] = _sriov(function, total)
    return {key: fact for key, fact in facts.items() if fact is not None}


def _identity(function: pci.Function) -> Facts:
    """Return the facts that physical and virtual functions have."""
    subsystem = [(function.read(f'subsystem_{each}') or '')[2:] for each in ('vendor', 'device')]
    facts: Facts = {
        'device': function.device,
        'class': function.class_code,
        'driver': function.driver,
        'subsystem': ':'.join(subsystem) if all(subsystem) else None,
        'revision': (function.read('revision') or '')[2:] or None,
        'reset': None if function.has('reset') else False,
    }
    for feature in FEATURES:
        if found := feature.recorded(function):
            facts[feature.key] = found
    return facts


def _sriov(function: pci.Function, total: int) -> Facts:
    parts = list(function.virtual_functions.values())
    routing_ids = [_routing_id(each.address) for each in (function, *parts)]
    device = function.read('sriov_vf_device') or function.device
    facts: Facts = {
        'total': total,
        'enabled': len(parts),
        'vf': {'device': device},
        'offset': routing_ids[1] - routing_ids[0]
        if parts
        else function.number('sriov_offset') or 1,
        'stride': routing_ids[2] - routing_ids[1]
        if parts[1:]
        else function.number('sriov_stride') or 1,
    }
    if parts:
        # vfio-pci, which is bound to those of guests, shows fewer attributes
        usual = collections.Counter(each.driver for each in parts if each.driver != 'vfio-pci')
        driver = usual.most_common(1)[0][0] if usual else 'vfio-pci'
        sample = next((each for each in parts if each.driver == driver), parts[0])
        facts['vf'] = {key: fact for key, fact in _identity(sample).items() if fact is not None}
    return facts


def _is_simulated(function: pci.Function) -> bool:
    return any(feature.key == 'mdev' and feature.recorded(function) for feature in FEATURES)


def _routing_id(address: str) -> int:
    bus, device, function = re.split('[:.]', address)[-3:]
    return (int(bus, 16) << 8) + (int(device, 16) << 3) + int(function)


def _differences(accesses: Accesses, facts: Facts) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return the accessed files and links that differ on a host built from the facts alone."""
    files: dict[str, str | None] = {}
    links: dict[str, str] = {}
    with scratch_directory() as directory:
        model = Accesses(Host.described(directory / 'sys', facts).sysfs.path)
        for each, is_used in sorted(accesses.names.items()):
            if not model.has(owner(each)):
                continue
            there, here = accesses.state(each, is_used), model.state(each, is_used)
            if there is None and here is not None:
                files[each] = None
            elif there is not None and there != here:
                kind, content = there
                if kind == 'link' and model.has(owner(content)):
                    links[each] = content
                elif kind != 'link':
                    files[each + '/' * (kind == 'directory')] = content
    return _without_implied(files), links


def _mounts(sysfs: Sysfs, accesses: Accesses) -> dict[str, str]:
    """Return a mount table of the accessed disks that are in use. Mount points and other mounts
    are private and are left out."""
    used, lines = host_usage.taken(sysfs), []
    for node in (sysfs / BLOCKS).children():
        number = node.read('dev') or '0:0'
        if f'{BLOCKS}/{node.name}' in accesses.names and used & {node.name, number}:
            lines.append(f'0 0 {number} / / rw - none /dev/{node.name} rw')
    return {MOUNTS: '\n'.join(lines)} if lines else {}


def _without_implied(files: Mapping[str, str | None]) -> dict[str, str | None]:
    """Leave out directories that are created with the files in them."""
    above = {f'{parent}/' for name in files for parent in Path(name).parents}
    return {name: text for name, text in files.items() if name not in above}


def _anonymize(
    files: Mapping[str, str | None], links: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Replace serial numbers by invented ones of the same shape."""
    serials = {
        text
        for name, text in files.items()
        if text and SERIAL.search(name) and len(text) >= SHORTEST_SERIAL
    }
    serials |= {found[1] for name in (*files, *links) if (found := POOL.match(name))}
    others = {serial: _numbered(serial, number) for number, serial in enumerate(sorted(serials), 1)}

    def hide(text: str | None) -> str | None:
        for serial, other in others.items():
            text = text and text.replace(serial, other)
        return text

    return (
        {str(hide(name)): hide(text) for name, text in files.items()},
        {str(hide(name)): str(hide(target)) for name, target in links.items()},
    )


def _numbered(serial: str, number: int) -> str:
    digits: Iterator[str] = itertools.chain(reversed(str(number)), itertools.repeat('0'))
    return ''.join(
        reversed([next(digits) if each.isalnum() else each for each in reversed(serial)])
    )
