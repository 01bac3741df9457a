# SPDX-License-Identifier: Apache-2.0
"""Checks of discovery: it is stable, and its results can be used."""

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
from cyborg.sim.conformance.testbed import CheckFailed, Checks, Testbed, comparable, handles
from cyborg.sim.host import Host
from cyborg.sim.watch import watch

CUSTOM = re.compile('CUSTOM_[A-Z0-9_]{1,248}')
PARTS = {
    'domain': '[0-9a-f]{4,8}',
    'bus': '[0-9a-f]{2}',
    'device': '[0-9a-f]{2}',
    'function': '[0-7]',
}
#: The longest texts. A deployable's name leaves room for the host's name before it.
LONGEST = {'key': 255, 'type': 30, 'vendor': 255, 'model': 255, 'name': 120}


def finds_devices(testbed: Testbed) -> None:
    """Discovery finds a device, and a handle that a guest can use."""
    devices = testbed.discover()
    if not devices:
        raise CheckFailed(
            'no device was found, so nothing can be checked: describe a host with its '
            'devices, and give the options that the driver needs'
        )
    if testbed.driver().shows_only:
        return
    if not any(handles(devices.values())):
        why = next(
            (device.fault for device in devices.values() if device.fault), 'no fault reported'
        )
        raise CheckFailed(f'no device has a handle ({why})')


def is_read_only(testbed: Testbed) -> None:
    """Discovery changes nothing."""
    before = testbed.snapshot()
    sysfs = watch(testbed.sysfs, lambda path, is_used: None)

    def refuse(path: Path, text: str) -> None:
        raise CheckFailed(f'{text!r} was written to {path}')

    sysfs.writer = refuse
    testbed.discover(sysfs)
    if testbed.snapshot() != before:
        raise CheckFailed('the host has changed')


def is_stable(testbed: Testbed) -> None:
    """Repeated discovery finds the same, by the same driver and by a new one."""
    driver = testbed.driver()
    first, second = ({each.key: comparable(each) for each in driver.discover()} for _ in range(2))
    third = {key: comparable(device) for key, device in testbed.discover().items()}
    for key in first.keys() | second.keys() | third.keys():
        if not first.get(key) == second.get(key) == third.get(key):
            raise CheckFailed(f'device {key} differs between two discoveries')


def ignores_enumeration_order(testbed: Testbed) -> None:
    """Names do not depend on the order in which the kernel enumerates the cards."""
    expected = identities(testbed.discover().values())
    facts = testbed.facts
    facts['cards'] = facts.get('cards', [])[::-1]
    host = Host.described(testbed.host.sysfs.path.parent / 'reversed', facts)
    if lost := expected ^ identities(testbed.discover(host.sysfs).values()):
        raise CheckFailed(f'{_some(lost)} depend on the order of the cards')


def survives_reboot(testbed: Testbed) -> None:
    """Names are the same after a reboot, when virtual functions have been created again."""
    expected = identities(testbed.discover().values())
    counts = {each.address: len(each.virtual_functions) for each in pci.functions(testbed.sysfs)}
    testbed.host.reboot()
    for address, count in counts.items():
        if count:
            testbed.host.sysfs.write(f'{pci.DEVICES}/{address}/sriov_numvfs', str(count))
    if lost := expected ^ identities(testbed.discover().values()):
        raise CheckFailed(f'{_some(lost)} were not found after the reboot')


def identities(devices: Iterable[objects.Device]) -> set[tuple[str, ...]]:
    """Return the identities of all devices, deployables and handles."""
    devices = list(devices)
    return (
        {(device.key,) for device in devices}
        | {(device.key, part.name) for device in devices for part in device.deployables}
        | {
            (device.key, part.name, handle.key, json.dumps(handle.info, sort_keys=True))
            for device, part, handle in handles(devices)
        }
    )


def _some(lost: Iterable[tuple[str, ...]]) -> str:
    return ', '.join(' '.join(each) for each in sorted(lost)[:3])


def has_unique_names(testbed: Testbed) -> None:
    """Keys and names are unique, and no two handles refer to the same resource."""
    found = list(testbed.driver().discover())
    _once('device', (device.key for device in found))
    _once('deployable', (part.name for device in found for part in device.deployables))
    for device in found:
        for part in device.deployables:
            _once(f'handle of {part.name}', (handle.key for handle in part.attach_handles))
    _once(
        'handle with the place',
        (f'{handle.type} {sorted(handle.info.items())}' for _, _, handle in handles(found)),
    )


def _once(noun: str, names: Iterable[str]) -> None:
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise CheckFailed(f'there are {count} of the {noun} {name}')


def uses_valid_placement_names(testbed: Testbed) -> None:
    """Traits and resource classes are valid in Placement."""
    traits, classes = set(os_traits.get_traits()), set(os_resource_classes.STANDARDS)
    for device in testbed.discover().values():
        for part in device.deployables:
            for trait in part.traits:
                if trait not in traits and not CUSTOM.fullmatch(trait):
                    raise CheckFailed(f'{part.name} has the invalid trait {trait}')
            name = part.resource_class
            if name is not None and name not in classes and not CUSTOM.fullmatch(name):
                raise CheckFailed(f'{part.name} has the invalid resource class {name}')


def is_serializable(testbed: Testbed) -> None:
    """Devices can be sent, stored and read again."""
    driver = testbed.driver()
    for device in driver.discover():
        sent = json.loads(json.dumps(device.obj_to_primitive()))
        if comparable(objects.Device.obj_from_primitive(sent)) != comparable(device):
            raise CheckFailed(f'device {device.key} differs after it was sent')
        if device.type != driver.type:
            raise CheckFailed(
                f'device {device.key} is of type {device.type}, the driver of {driver.type}'
            )
        for field, text in _texts(device):
            if not text or len(text) > LONGEST[field] or not text.isprintable():
                raise CheckFailed(
                    f'the {field} {text[:80]!r} is empty, unprintable, or longer than '
                    f'{LONGEST[field]} characters'
                )


def _texts(device: objects.Device) -> Iterator[tuple[str, str]]:
    parts: list[Any] = [device, *device.deployables, *(each[2] for each in handles([device]))]
    for each in parts:
        for field in LONGEST.keys() & each.fields.keys():
            if each.obj_attr_is_set(field) and getattr(each, field) is not None:
                yield field, getattr(each, field)


def forms_a_tree(testbed: Testbed) -> None:
    """Deployables form a tree and count their handles."""
    for device in testbed.discover().values():
        names = {part.name for part in device.deployables}
        above = {part.name: part.parent_name for part in device.deployables}
        for part in device.deployables:
            if part.parent_name is not None and part.parent_name not in names:
                raise CheckFailed(
                    f'{part.name} has the parent {part.parent_name}, which does not exist'
                )
            if _is_circular(part.name, above):
                raise CheckFailed(f'{part.name} is its own ancestor')
            if part.num_accelerators != len(part.attach_handles):
                raise CheckFailed(
                    f'{part.name} counts {part.num_accelerators} accelerators and has '
                    f'{len(part.attach_handles)} handles'
                )
            if (part.resource_class is None) is bool(part.attach_handles):
                raise CheckFailed(
                    f'{part.name} must have a resource class if it has handles, and only then'
                )


def _is_circular(name: str | None, above: dict[str, str | None]) -> bool:
    for _ in range(len(above) + 1):
        name = above.get(name) if name is not None else None
    return name is not None


def locates_handles(testbed: Testbed) -> None:
    """Handles contain the address of an existing device."""
    for _, part, handle in handles(testbed.discover().values()):
        label = f'handle {handle.key} of {part.name}'
        if handle.type == objects.HandleType.TEST_PCI:
            continue
        for name, form in PARTS.items():
            if not re.fullmatch(form, handle.info.get(name, '')):
                raise CheckFailed(
                    f'{label} has the {name} {handle.info.get(name)!r}, which is not '
                    'the format of sysfs and Nova'
                )
        function = pci.Function.at(
            testbed.sysfs, '{domain}:{bus}:{device}.{function}'.format(**handle.info)
        )
        if not function.exists():
            raise CheckFailed(f'{label} has the address {function.address}, where no device is')
        if handle.type == objects.HandleType.MDEV:
            if handle.info.get('asked_type') not in mdev.types(function):
                raise CheckFailed(
                    f'{label} has an asked_type that {function.address} does not offer'
                )
            if not handle.is_host_prepared:
                raise CheckFailed(f'{label} is a mediated device, which the host must prepare')
        elif function.iommu_group is None:
            raise CheckFailed(f'{label} is {function.address}, which is in no IOMMU group')


def needs_no_privilege(testbed: Testbed) -> None:
    """Discovery reads no file that only root may read."""
    private: list[Path] = []

    def look(path: Path, is_used: bool) -> None:
        if is_used and path.is_file() and not path.stat().st_mode & 0o004:
            private.append(path)

    testbed.discover(watch(testbed.sysfs, look))
    if private:
        raise CheckFailed(f'{private[0]} is not readable by every user')


DISCOVERY_CHECKS = Checks(
    finds_devices,
    is_read_only,
    is_stable,
    ignores_enumeration_order,
    survives_reboot,
    has_unique_names,
    uses_valid_placement_names,
    is_serializable,
    forms_a_tree,
    locates_handles,
    needs_no_privilege,
    last=[survives_reboot],
)
