# SPDX-License-Identifier: Apache-2.0
"""Describes a host for a driver: the cards that its catalogue names."""

from collections.abc import Iterator

from cyborg.accelerator import pci
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim import catalogue
from cyborg.sim.bus import Facts
from cyborg.sim.conformance.testbed import NOWHERE, MakeDriver

#: Further cards; products that differ only by their ids need not all be present.
ENOUGH_OTHERS = 2
ENOUGH_PARTS = 3  #: virtual functions per card
FIRST_BUS, LAST_BUS = 0x10, 0xF0
STEP = 4  #: bus numbers per card: for its virtual functions and the bridge above it


def default_host(make: MakeDriver) -> Facts:
    """Describe a host with simulated cards that match the driver's catalogue, plain cards for
    products that the simulator does not know, and cards that the driver must ignore."""
    driver = make(Sysfs(NOWHERE))
    cards = [_known(model) for model in catalogue.models()]
    if isinstance(driver, pci.Driver):
        fitting = [
            card for card in cards if any(fits(model, card['model']) for model in driver.catalogue)
        ]
        known = {card['model'] for card in fitting}
        others = [
            _plain(model)
            for model in driver.catalogue
            if pci.ANY not in (model.vendor, model.devices) and not known & _ids(model)
        ]
        strangers = [card for card in cards if card['model'] not in known]
        cards = fitting + others[:ENOUGH_OTHERS] + strangers[:ENOUGH_OTHERS]
    return {'cards': [card | {'at': at} for card, at in zip(cards, slots(), strict=False)]}


def fits(model: pci.Model, known: str) -> bool:
    """Return whether a driver's model is that of a card in the catalogue of the simulator."""
    vendor, device = known.split(':')
    kind = catalogue.card(known)['class']
    return (
        model.vendor in (vendor, pci.ANY)
        and (model.devices == pci.ANY or device in _devices(model))
        and (not model.classes or kind.startswith(model.classes))
    )


def _known(model: str) -> Facts:
    enabled = catalogue.card(model).get('sriov', {}).get('enabled', 0)
    return {'model': model} | ({'vfs': min(enabled, ENOUGH_PARTS)} if enabled else {})


def _devices(model: pci.Model) -> tuple[str, ...]:
    return (model.devices,) if isinstance(model.devices, str) else model.devices


def _ids(model: pci.Model) -> set[str]:
    return {f'{model.vendor}:{each}' for each in _devices(model)}


def _plain(model: pci.Model) -> Facts:
    vendor, device = min(_ids(model)).split(':')
    kind = model.classes[0] if model.classes else 'ff'
    return {
        'vendor': vendor,
        'device': device,
        'name': model.product,
        'class': kind.ljust(6, '0'),
        'subsystem': f'{vendor}:{(*model.subdevices, "0000")[0]}',
    }


def slots() -> Iterator[str]:
    """Yield addresses of slots that do not get into each other's way."""
    for domain in range(0x10000):
        for bus in range(FIRST_BUS, LAST_BUS, STEP):
            yield f'{domain:04x}:{bus:02x}:00.0'
