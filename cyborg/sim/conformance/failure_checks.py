# SPDX-License-Identifier: Apache-2.0
"""Checks of failures: damaged files, cards that are removed at any moment, invalid images."""

import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from cyborg import errors, objects
from cyborg.accelerator import pci
from cyborg.sim.conformance.attach_checks import prepared
from cyborg.sim.conformance.testbed import CheckFailed, Checks, Testbed, comparable, handles
from cyborg.sim.host import Host
from cyborg.sim.overlay import owner
from cyborg.sim.recorder import Accesses
from cyborg.sim.watch import watch

#: Unexpected contents of a file.
INVALID_CONTENTS = (b'', b'\xff\xfe\x00', b'-1\n', b'99999999999999999999\n', b'a b c\nd = e\n' * 9)
#: Limits that keep the checks short; more of the same kind would be repetition.
MOST_PLACES, MOST_CARDS, MOST_MOMENTS = 60, 4, 25


def survives_damaged_files(testbed: Testbed) -> None:
    """A damaged file does not make discovery fail, and does not change other devices."""
    root = testbed.host.sysfs.path
    accesses = Accesses(root)
    before = testbed.discover(watch(testbed.sysfs, accesses.note))
    expected = {key: comparable(device) for key, device in before.items()}
    for name in _places(accesses):
        spared = [
            key for key, device in before.items() if owner(name) not in (None, *addresses(device))
        ]
        for damage in _damages(root / name, root.parent / 'aside'):
            found = {each.key: comparable(each) for each in _discover(testbed, f'{name} {damage}')}
            for key in spared:
                if found.get(key) != expected[key]:
                    raise CheckFailed(f'{name} {damage} changed the device {key}')


def _discover(testbed: Testbed, occasion: str) -> list[objects.Device]:
    try:
        return list(testbed.driver().discover())
    except Exception as error:
        raise CheckFailed(f'{occasion}, and discover raised {error!r}') from error


def _places(accesses: Accesses) -> list[str]:
    """Return one file of each kind, since the same file of another card is treated alike."""
    kinds: dict[str, str] = {}
    for name, is_used in sorted(accesses.names.items()):
        state = accesses.state(name)
        if is_used and state is not None:
            kinds.setdefault(re.sub(r'[0-9a-f]*\d[0-9a-f]*', '#', name), name)
    return list(kinds.values())[:MOST_PLACES]


def _damages(path: Path, aside: Path) -> Iterator[str]:
    """Damage a file in one way after the other, and restore it after each."""
    path = path.parent.resolve() / path.name
    ways: dict[str, Callable[[], object]] = {
        'is gone': lambda: None,
        'is a directory': path.mkdir,
        'is a dangling link': lambda: path.symlink_to('nowhere'),
        'is a link to itself': lambda: path.symlink_to(path.name),
    }
    ways |= {
        f'holds {content[:20]!r}': functools.partial(path.write_bytes, content)
        for content in INVALID_CONTENTS
    }
    for damage, damage_file in ways.items():
        path.rename(aside)
        try:
            damage_file()
            yield damage
        finally:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            aside.rename(path)


def survives_removal(testbed: Testbed) -> None:
    """The removal of a card during discovery does not change other devices."""
    devices = testbed.discover()
    expected = {key: comparable(device) for key, device in devices.items()}
    cards = {each['at']: each for each in testbed.facts.get('cards', ())}
    places = [
        (key, address)
        for key, device in devices.items()
        for address in addresses(device) & cards.keys()
    ]
    for key, address in places[:MOST_CARDS]:
        for moment in _moments(testbed, address):
            occasion = f'{address} was removed at access {moment}'
            found = {
                each.key: comparable(each)
                for each in _discover_and_pull(testbed, address, moment, occasion)
            }
            testbed.host.plug_in(**cards[address])
            for other in expected.keys() - {key}:
                if found.get(other) != expected[other]:
                    raise CheckFailed(f'{occasion}, and the device {other} changed')


def _moments(testbed: Testbed, address: str) -> range:
    """Return the numbers of some accesses to a card, from the first to the last."""
    count = 0

    def on_access(path: Path, is_used: bool) -> None:
        nonlocal count
        count += address in path.parts

    testbed.discover(watch(testbed.sysfs, on_access))
    return range(1, count + 1, max(count // MOST_MOMENTS, 1))


def _discover_and_pull(
    testbed: Testbed, address: str, moment: int, occasion: str
) -> list[objects.Device]:
    left = moment

    def on_access(path: Path, is_used: bool) -> None:
        nonlocal left
        left -= address in path.parts
        if left == 0 and address in testbed.host.cards:
            testbed.host.pull_out(address)

    try:
        found = list(testbed.driver(watch(testbed.sysfs, on_access)).discover())
    except Exception as error:
        raise CheckFailed(f'{occasion}, and discover raised {error!r}') from error
    if address in testbed.host.cards:
        testbed.host.pull_out(address)
    return found


def addresses(device: objects.Device) -> set[str]:
    """Return the addresses of a device that its control paths and handles contain."""
    infos = [path.info for path in device.control_paths]
    infos += [handle.info for _, _, handle in handles([device])]
    spelled = {
        '{domain}:{bus}:{device}.{function}'.format(**info)
        for info in infos
        if info.keys() >= {'domain', 'bus', 'device', 'function'}
    }
    return {each for each in spelled if pci.ADDRESS.fullmatch(each)}


def survives_an_empty_host(testbed: Testbed) -> None:
    """A host without any card causes no error in discovery."""
    root = testbed.host.sysfs.path.parent
    testbed.discover(Host(root / 'empty').sysfs)
    (root / 'nothing').mkdir()
    sysfs = watch(testbed.sysfs, lambda path, is_used: None)
    sysfs.path = root / 'nothing'
    testbed.discover(sysfs)


def detaches_from_missing_cards(testbed: Testbed) -> None:
    """Detaching from a missing card raises no error; attaching to it raises DriverFailed."""
    for task in prepared(testbed):
        device = testbed.discover()[task.device_key]
        testbed.driver().attach(task.handle, task)
        for address in addresses(device) & testbed.host.cards.keys():
            testbed.host.pull_out(address)
        testbed.driver().detach(task.handle)
        try:
            testbed.driver().attach(task.handle, task)
        except errors.DriverFailed:
            continue
        except Exception as error:
            raise CheckFailed(
                f'attaching {task.handle.key} to a missing card raised {error!r}'
            ) from error
        raise CheckFailed(f'attaching {task.handle.key} to a missing card raised no error')


def refuses_invalid_images(testbed: Testbed) -> None:
    """An invalid image is refused with DriverFailed."""
    with tempfile.NamedTemporaryFile(prefix='cyborg-sim-') as image:
        image.write(b'\x00\xffnoise' * 100)
        image.flush()
        for device in testbed.discover().values():
            for part in device.deployables:
                try:
                    testbed.driver().program(part.name, Path(image.name), {})
                except errors.DriverFailed:
                    continue
                raise CheckFailed(f'{part.name} accepted an invalid image')


FAILURE_CHECKS = Checks(
    survives_damaged_files,
    survives_removal,
    survives_an_empty_host,
    detaches_from_missing_cards,
    refuses_invalid_images,
    last=[survives_removal, detaches_from_missing_cards],
)
