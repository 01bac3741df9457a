# SPDX-License-Identifier: Apache-2.0
"""Promises for bad days: spoilt files, cards that go at any moment, images that fit nothing."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cyborg import errors, objects
from cyborg.accelerator import pci
from cyborg.sim.conformance.bench import Bench, Checks, Failed, handles, plain
from cyborg.sim.conformance.serving import prepared
from cyborg.sim.host import Host
from cyborg.sim.overlay import owner
from cyborg.sim.recorder import Looks
from cyborg.sim.watch import watch

#: What a file may hold instead of what belongs there.
NOISE = (b'', b'\xff\xfe\x00', b'-1\n', b'99999999999999999999\n', b'a b c\nd = e\n' * 9)
#: Enough to meet every line of a driver; the rest is repetition.
MOST_PLACES, MOST_CARDS, MOST_MOMENTS = 60, 4, 25


def survives_spoilt_files(bench: Bench) -> None:
    """Whatever a file holds, looking ends well, and other cards are as before."""
    root = bench.host.sysfs.path
    looks = Looks(root)
    before = bench.discover(watch(bench.sysfs, looks.look))
    expected = {key: plain(device) for key, device in before.items()}
    for name in _places(looks):
        spared = [key for key, device in before.items()
                  if owner(name) not in (None, *addresses(device))]
        for damage in _damages(root / name, root.parent / 'aside'):
            found = {each.key: plain(each) for each in _look(bench, f'{name} {damage}')}
            for key in spared:
                if found.get(key) != expected[key]:
                    raise Failed(f'{name} {damage} changed the device {key}')


def _look(bench: Bench, occasion: str) -> list[objects.Device]:
    try:
        return list(bench.driver().discover())
    except Exception as error:
        raise Failed(f'{occasion}, and discover raised {error!r}') from error


def _places(looks: Looks) -> list[str]:
    """One of each kind: the same file of another card teaches nothing."""
    kinds: dict[str, str] = {}
    for name, is_used in sorted(looks.names.items()):
        state = looks.state(name)
        if is_used and state is not None:
            kinds.setdefault(re.sub(r'[0-9a-f]*\d[0-9a-f]*', '#', name), name)
    return list(kinds.values())[:MOST_PLACES]


def _damages(path: Path, aside: Path) -> Iterator[str]:
    """Spoil a place in one way after the other; what was there comes back after each."""
    path = path.parent.resolve() / path.name
    ways = {'is gone': lambda: None, 'is a directory': path.mkdir,
            'leads nowhere': lambda: path.symlink_to('nowhere'),
            'leads to itself': lambda: path.symlink_to(path.name)}
    ways |= {f'holds {noise[:20]!r}': lambda noise=noise: path.write_bytes(noise)
             for noise in NOISE}
    for damage, spoil in ways.items():
        path.rename(aside)
        try:
            spoil()
            yield damage
        finally:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            aside.rename(path)


def survives_vanishing(bench: Bench) -> None:
    """A card that goes while it is looked at is there or not; others are as before."""
    devices = bench.discover()
    expected = {key: plain(device) for key, device in devices.items()}
    cards = {each['at']: each for each in bench.facts.get('cards', ())}
    places = [(key, address) for key, device in devices.items()
              for address in addresses(device) & cards.keys()]
    for key, address in places[:MOST_CARDS]:
        for moment in _moments(bench, address):
            occasion = f'{address} went at look {moment}'
            found = {each.key: plain(each)
                     for each in _look_and_pull(bench, address, moment, occasion)}
            bench.host.plug_in(**cards[address])
            for other in expected.keys() - {key}:
                if found.get(other) != expected[other]:
                    raise Failed(f'{occasion}, and the device {other} changed')


def _moments(bench: Bench, address: str) -> range:
    """Some of the looks at a card, from the first to the last."""
    count = 0

    def look(path: Path, is_used: bool) -> None:
        nonlocal count
        count += address in path.parts
    bench.discover(watch(bench.sysfs, look))
    return range(1, count + 1, max(count // MOST_MOMENTS, 1))


def _look_and_pull(bench: Bench, address: str, moment: int,
                   occasion: str) -> list[objects.Device]:
    left = moment

    def look(path: Path, is_used: bool) -> None:
        nonlocal left
        left -= address in path.parts
        if left == 0 and address in bench.host.cards:
            bench.host.pull_out(address)
    try:
        found = list(bench.driver(watch(bench.sysfs, look)).discover())
    except Exception as error:
        raise Failed(f'{occasion}, and discover raised {error!r}') from error
    if address in bench.host.cards:
        bench.host.pull_out(address)
    return found


def addresses(device: objects.Device) -> set[str]:
    """All functions that a device consists of, as far as it says so."""
    infos = [path.info for path in device.control_paths]
    infos += [handle.info for _, _, handle in handles([device])]
    spelled = {'{domain}:{bus}:{device}.{function}'.format(**info) for info in infos
               if info.keys() >= {'domain', 'bus', 'device', 'function'}}
    return {each for each in spelled if pci.ADDRESS.fullmatch(each)}


def survives_an_empty_host(bench: Bench) -> None:
    """A host without any card is looked at without an error."""
    root = bench.host.sysfs.path.parent
    bench.discover(Host(root / 'empty').sysfs)
    (root / 'nothing').mkdir()
    sysfs = watch(bench.sysfs, lambda path, is_used: None)
    sysfs.path = root / 'nothing'
    bench.discover(sysfs)


def cleans_up_after_loss(bench: Bench) -> None:
    """Detaching from a card that is gone is no error; attaching to it is DriverFailed."""
    for work in prepared(bench):
        device = bench.discover()[work.device_key]
        bench.driver().attach(work.handle, work)
        for address in addresses(device) & bench.host.cards.keys():
            bench.host.pull_out(address)
        bench.driver().detach(work.handle)
        try:
            bench.driver().attach(work.handle, work)
        except errors.DriverFailed:
            continue
        except Exception as error:
            raise Failed(f'attaching {work.handle.key} to a card that is gone raised '
                         f'{error!r}') from error
        raise Failed(f'attaching {work.handle.key} to a card that is gone was no error')


def refuses_noise(bench: Bench) -> None:
    """An image that fits nothing is refused with DriverFailed."""
    with tempfile.NamedTemporaryFile(prefix='cyborg-sim-') as image:
        image.write(b'\x00\xffnoise' * 100)
        image.flush()
        for device in bench.discover().values():
            for part in device.deployables:
                try:
                    bench.driver().program(part.name, Path(image.name), {})
                except errors.DriverFailed:
                    continue
                raise Failed(f'{part.name} took noise for an image')


SUFFERING = Checks(survives_spoilt_files, survives_vanishing, survives_an_empty_host,
                   cleans_up_after_loss, refuses_noise,
                   last=[survives_vanishing, cleans_up_after_loss])
