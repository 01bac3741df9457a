# SPDX-License-Identifier: Apache-2.0
"""Promises about discovery: that it is stable, and that what is found can be used."""

import collections
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import os_resource_classes
import os_traits

from cyborg import objects
from cyborg.accelerator import mdev, pci
from cyborg.sim.conformance.bench import Bench, Checks, Failed, handles, plain
from cyborg.sim.host import Host
from cyborg.sim.watch import watch

CUSTOM = re.compile('CUSTOM_[A-Z0-9_]{1,248}')
PARTS = {'domain': '[0-9a-f]{4,8}', 'bus': '[0-9a-f]{2}', 'device': '[0-9a-f]{2}',
         'function': '[0-7]'}
#: How long a text may be. The host's name comes before a deployable's.
LONGEST = {'key': 255, 'type': 30, 'vendor': 255, 'model': 255, 'name': 120}


def finds(bench: Bench) -> None:
    """It finds a device, and something on it that a guest could have."""
    devices = bench.discover()
    if not devices:
        raise Failed('nothing was found, so nothing can be tried: describe a host with its '
                     'devices, and give the options that it needs')
    if bench.driver().shows_only:
        return
    if not any(handles(devices.values())):
        why = next((device.fault for device in devices.values() if device.fault), 'no fault told')
        raise Failed(f'no device offers anything ({why})')


def changes_nothing(bench: Bench) -> None:
    """Looking changes nothing."""
    before = bench.picture()
    sysfs = watch(bench.sysfs, lambda path, is_used: None)

    def refuse(path: Path, text: str) -> None:
        raise Failed(f'{text!r} was written to {path}')
    sysfs.writer = refuse
    bench.discover(sysfs)
    if bench.picture() != before:
        raise Failed('the host is not as it was before')


def is_stable(bench: Bench) -> None:
    """Looking again shows the same, to the same driver and to a new one."""
    driver = bench.driver()
    first, second = ({each.key: plain(each) for each in driver.discover()} for _ in range(2))
    third = {key: plain(device) for key, device in bench.discover().items()}
    for key in first.keys() | second.keys() | third.keys():
        if not first.get(key) == second.get(key) == third.get(key):
            raise Failed(f'device {key} is not the same at every look')


def ignores_order(bench: Bench) -> None:
    """Names stay when the kernel counts the cards in another order."""
    expected = identities(bench.discover().values())
    facts = bench.facts
    facts['cards'] = facts.get('cards', [])[::-1]
    host = Host.described(bench.host.sysfs.path.parent / 'reversed', facts)
    if lost := expected ^ identities(bench.discover(host.sysfs).values()):
        raise Failed(f'{_some(lost)} depend on the order in which cards were found')


def survives_reboot(bench: Bench) -> None:
    """Names stay over a reboot, after which virtual functions were made anew."""
    expected = identities(bench.discover().values())
    counts = {each.address: len(each.virtual_functions) for each in pci.functions(bench.sysfs)}
    bench.host.reboot()
    for address, count in counts.items():
        if count:
            bench.host.sysfs.write(f'{pci.DEVICES}/{address}/sriov_numvfs', str(count))
    if lost := expected ^ identities(bench.discover().values()):
        raise Failed(f'{_some(lost)} did not survive')


def identities(devices: Iterable[objects.Device]) -> set[tuple[str, ...]]:
    """What tells devices, deployables and handles from others of their kind."""
    devices = list(devices)
    return ({(device.key,) for device in devices}
            | {(device.key, part.name) for device in devices for part in device.deployables}
            | {(device.key, part.name, handle.key, json.dumps(handle.info, sort_keys=True))
               for device, part, handle in handles(devices)})


def _some(lost: Iterable[tuple[str, ...]]) -> str:
    return ', '.join(' '.join(each) for each in sorted(lost)[:3])


def is_unique(bench: Bench) -> None:
    """Keys and names are unique, and no two handles are the same thing."""
    found = list(bench.driver().discover())
    _once('device', (device.key for device in found))
    _once('deployable', (part.name for device in found for part in device.deployables))
    for device in found:
        for part in device.deployables:
            _once(f'handle of {part.name}', (handle.key for handle in part.attach_handles))
    _once('handle with the place', (
        f'{handle.type} {sorted(handle.info.items())}' for _, _, handle in handles(found)))


def _once(noun: str, names: Iterable[str]) -> None:
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise Failed(f'there are {count} of the {noun} {name}')


def speaks_placement(bench: Bench) -> None:
    """Traits and resource classes are such as Placement takes."""
    traits, classes = set(os_traits.get_traits()), set(os_resource_classes.STANDARDS)
    for device in bench.discover().values():
        for part in device.deployables:
            for trait in part.traits:
                if trait not in traits and not CUSTOM.fullmatch(trait):
                    raise Failed(f'{part.name} has the trait {trait}, which cannot be')
            name = part.resource_class
            if name is not None and name not in classes and not CUSTOM.fullmatch(name):
                raise Failed(f'{part.name} has the resource class {name}, which cannot be')


def can_be_sent(bench: Bench) -> None:
    """All that is found can be sent, stored and read again."""
    driver = bench.driver()
    for device in driver.discover():
        sent = json.loads(json.dumps(device.obj_to_primitive()))
        if plain(objects.Device.obj_from_primitive(sent)) != plain(device):
            raise Failed(f'device {device.key} is another one after it was sent')
        if device.type != driver.type:
            raise Failed(f'device {device.key} is of type {device.type}, the driver of '
                         f'{driver.type}')
        for field, text in _texts(device):
            if not text or len(text) > LONGEST[field] or not text.isprintable():
                raise Failed(f'the {field} {text[:80]!r} is empty, unprintable, or longer than '
                             f'{LONGEST[field]} characters')


def _texts(device: objects.Device) -> Iterator[tuple[str, str]]:
    parts: list[Any] = [device, *device.deployables, *(each[2] for each in handles([device]))]
    for each in parts:
        for field in LONGEST.keys() & each.fields.keys():
            if each.obj_attr_is_set(field) and getattr(each, field) is not None:
                yield field, getattr(each, field)


def is_a_tree(bench: Bench) -> None:
    """Deployables form a tree and count their handles."""
    for device in bench.discover().values():
        names = {part.name for part in device.deployables}
        above = {part.name: part.parent_name for part in device.deployables}
        for part in device.deployables:
            if part.parent_name is not None and part.parent_name not in names:
                raise Failed(f'{part.name} hangs from {part.parent_name}, which is not there')
            if _is_circular(part.name, above):
                raise Failed(f'{part.name} hangs from itself')
            if part.num_accelerators != len(part.attach_handles):
                raise Failed(f'{part.name} counts {part.num_accelerators} accelerators and has '
                             f'{len(part.attach_handles)} handles')
            if (part.resource_class is None) is bool(part.attach_handles):
                raise Failed(f'{part.name} must have a resource class if it has handles, and '
                             'only then')


def _is_circular(name: str | None, above: dict[str, str | None]) -> bool:
    for _ in range(len(above) + 1):
        name = above.get(name) if name is not None else None
    return name is not None


def places_handles(bench: Bench) -> None:
    """Handles say where they sit, and there is something."""
    for _, part, handle in handles(bench.discover().values()):
        label = f'handle {handle.key} of {part.name}'
        if handle.type == objects.HandleType.TEST_PCI:
            continue
        for name, form in PARTS.items():
            if not re.fullmatch(form, handle.info.get(name, '')):
                raise Failed(f'{label} has the {name} {handle.info.get(name)!r}, which is not '
                             'how sysfs and Nova spell it')
        function = pci.Function.at(bench.sysfs, '{domain}:{bus}:{device}.{function}'.format(
            **handle.info))
        if not function.exists():
            raise Failed(f'{label} sits at {function.address}, where nothing is')
        if handle.type == objects.HandleType.MDEV:
            if handle.info.get('asked_type') not in mdev.types(function):
                raise Failed(f'{label} has an asked_type that {function.address} does not offer')
            if not handle.is_host_prepared:
                raise Failed(f'{label} is a mediated device, which the host must prepare')
        elif function.iommu_group is None:
            raise Failed(f'{label} is {function.address}, which is in no IOMMU group')


def needs_no_root(bench: Bench) -> None:
    """Looking reads nothing that only root may read."""
    private: list[Path] = []

    def look(path: Path, is_used: bool) -> None:
        if is_used and path.is_file() and not path.stat().st_mode & 0o004:
            private.append(path)
    bench.discover(watch(bench.sysfs, look))
    if private:
        raise Failed(f'{private[0]} is not for everybody')


LOOKING = Checks(finds, changes_nothing, is_stable, ignores_order, survives_reboot, is_unique,
                 speaks_placement, can_be_sent, is_a_tree, places_handles, needs_no_root,
                 last=[survives_reboot])
