# SPDX-License-Identifier: Apache-2.0
"""One host of a fleet: a real agent's parts without its thread, its driver and Placement."""

import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from oslo_config import cfg

from cyborg import objects
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent import inventory
from cyborg.agent.bitstreams import Bitstreams
from cyborg.agent.cleaning import Cleaner
from cyborg.agent.pool import Pool
from cyborg.agent.worker import Worker
from cyborg.clients.placement import Published
from cyborg.conductor.rpcapi import ConductorAPI

DRIVER = 'fleet_driver'
RESOURCE_CLASS, TRAIT = 'FPGA', 'CUSTOM_FLEET'
#: guests that can share a card
HANDLES = 4


class Cards:
    """What a driver sees, and does: cards that one can add and take away."""

    name = DRIVER

    def __init__(self, count: int) -> None:
        self.count = count

    def discover(self) -> list[objects.Device]:
        return [_card(number) for number in range(self.count)]

    def attach(self, task: objects.Task) -> None:
        """Done at once."""

    def detach(self, task: objects.Task) -> None:
        """Done at once."""

    def lost(self, tasks: Sequence[objects.Task]) -> list[objects.Task]:
        """Nobody undoes what was done."""
        return []


class NoPlacement:
    """Everything is published as it should be: conductors are what a fleet is for."""

    def publish(self, root_name: str, providers: Iterable[objects.Provider],
                addresses: Mapping[str, Set[str]] | None = None) -> Published:
        return Published(adopted={}, conflicts={}, is_settled=True)

    def forget(self) -> None:
        """Nothing was remembered."""


class Host(inventory.Inventory):
    """Is told when to make a round. It looks when something happened and otherwise says that
    nothing did, since it need not look to know that."""

    def __init__(self, conf: cfg.ConfigOpts, name: str, cards: int, conductor: ConductorAPI,
                 pool: Pool, sysfs: Sysfs) -> None:
        self.name = name
        self.cards = Cards(cards)
        guards: list[Any] = [self.cards]
        self.worker = Worker(name, guards, conductor, pool, Bitstreams(conf, name, None),
                             Cleaner(conf, name))
        super().__init__(conf, name, guards, conductor, NoPlacement(), self.worker, sysfs)
        self._done = 0
        self.wake()

    @property
    def must_look(self) -> bool:
        """Did something happen since the last round?"""
        return self._awake.is_set() or self.worker.count != self._done

    def look(self) -> None:
        """A round as the real agent makes it."""
        self._done = self.worker.count
        self._awake.clear()
        try:
            self.sync()
        except Exception:
            self._awake.set()
            raise

    def agree(self) -> str:
        """Be as if all had been reported and published long ago; answers the digest of that."""
        self.is_ready.set()
        states = [objects.Driver(name=DRIVER, status=objects.DriverStatus.OK)]
        self._digest = self._report(
            self._localisable(), states, 0, {}, mdevs=[], in_flux=[], lost={}).digest
        self._awake.clear()
        return self._digest

    def _localisable(self) -> list[objects.Device]:
        found = self.cards.discover()
        for device in found:
            device.driver_name = DRIVER
        return found

    def provider(self, card: int) -> str:
        """The uuid under which a card is known to Placement."""
        return str(uuid.uuid5(inventory.NAMESPACE, f'{self.name}_{_name(card)}'))


def _name(number: int) -> str:
    return f'card{number}'


def _card(number: int) -> objects.Device:
    bus = f'{number % 256:02x}'
    return objects.Device(
        key=_name(number), type='FPGA', vendor='8086', model='Simulated', driver_name=DRIVER,
        std_board_info={'product_id': '09c4', 'numa_node': '0'},
        control_paths=[objects.ControlPath(type='PCI', info=_address(bus, 0))],
        deployables=[objects.Deployable(
            name=_name(number), driver_name=DRIVER, resource_class=RESOURCE_CLASS,
            traits=[TRAIT], num_accelerators=HANDLES,
            # prepared by the host, so that a bind takes all the messages it can
            attach_handles=[objects.AttachHandle(
                key=str(unit), type=objects.HandleType.PCI, info=_address(bus, unit + 1),
                is_host_prepared=True) for unit in range(HANDLES)])])


def _address(bus: str, function: int) -> dict[str, str]:
    return {'domain': '0000', 'bus': bus, 'device': '00', 'function': str(function)}
