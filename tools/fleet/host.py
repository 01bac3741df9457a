# SPDX-License-Identifier: Apache-2.0
"""A host of a fleet: an agent without its own thread, a real driver and Placement."""

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
#: attach handles per card
HANDLES = 4


class FleetDriver:
    """A driver with cards in memory, whose number can be changed."""

    name = DRIVER
    can_program = False

    def __init__(self, count: int) -> None:
        self.count = count

    def discover(self) -> list[objects.Device]:
        return [_card(number) for number in range(self.count)]

    def attach(self, task: objects.Task) -> None:
        """Do nothing: there is no hardware."""

    def detach(self, task: objects.Task) -> None:
        """Do nothing: there is no hardware."""

    def lost(self, tasks: Sequence[objects.Task]) -> list[objects.Task]:
        """Return no task: no attachment is ever lost."""
        return []


class NoPlacement:
    """Reports every publication as complete: a fleet measures conductors, not Placement."""

    def publish(
        self,
        root_name: str,
        providers: Iterable[objects.Provider],
        addresses: Mapping[str, Set[str]] | None = None,
        taken_over: Iterable[str] = (),
    ) -> Published:
        return Published(adopted={}, conflicts={}, is_complete=True)

    def forget(self) -> None:
        """Do nothing: there is no cache."""


class FleetHost(inventory.Inventory):
    """An inventory whose rounds are started by the fleet's process. It reports after a change, and
    otherwise sends a heartbeat without a scan of its cards."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        name: str,
        cards: int,
        conductor: ConductorAPI,
        pool: Pool,
        sysfs: Sysfs,
    ) -> None:
        self.name = name
        self.cards = FleetDriver(cards)
        guards: list[Any] = [self.cards]
        self.worker = Worker(
            name, guards, conductor, pool, Bitstreams(conf, name, None), Cleaner(conf, name)
        )
        super().__init__(conf, name, guards, conductor, NoPlacement(), self.worker, sysfs)
        self._reported_tasks = 0
        self.wake()

    @property
    def must_report(self) -> bool:
        """Whether something has changed since the last round."""
        return self._awake.is_set() or self.worker.count != self._reported_tasks

    def report(self) -> None:
        """Make a round as the real agent does."""
        self._reported_tasks = self.worker.count
        self._awake.clear()
        try:
            self.sync()
        except Exception:
            self._awake.set()
            raise

    def assume_reported(self) -> str:
        """Assume that everything is reported and published; returns the digest of the report."""
        self.is_ready.set()
        states = [objects.Driver(name=DRIVER, status=objects.DriverStatus.OK)]
        self._digest = self._report(
            self._devices(), states, 0, {}, [], mdevs=[], in_flux=[], lost={}
        ).digest
        self._awake.clear()
        return self._digest

    def _devices(self) -> list[objects.Device]:
        found = self.cards.discover()
        for device in found:
            device.driver_name = DRIVER
        return found

    def provider(self, card: int) -> str:
        """Return the uuid of a card's resource provider."""
        return str(uuid.uuid5(inventory.NAMESPACE, f'{self.name}_{_name(card)}'))


def _name(number: int) -> str:
    return f'card{number}'


def _card(number: int) -> objects.Device:
    bus = f'{number % 256:02x}'
    return objects.Device(
        key=_name(number),
        type='FPGA',
        vendor='8086',
        model='Simulated',
        driver_name=DRIVER,
        std_board_info={'product_id': '09c4', 'numa_node': '0'},
        control_paths=[objects.ControlPath(type='PCI', info=_address(bus, 0))],
        deployables=[
            objects.Deployable(
                name=_name(number),
                driver_name=DRIVER,
                resource_class=RESOURCE_CLASS,
                traits=[TRAIT],
                num_accelerators=HANDLES,
                # prepared by the host, so that a bind needs all possible messages
                attach_handles=[
                    objects.AttachHandle(
                        key=str(unit),
                        type=objects.HandleType.PCI,
                        info=_address(bus, unit + 1),
                        is_host_prepared=True,
                    )
                    for unit in range(HANDLES)
                ],
            )
        ],
    )


def _address(bus: str, function: int) -> dict[str, str]:
    return {'domain': '0000', 'bus': bus, 'device': '00', 'function': str(function)}
