# SPDX-License-Identifier: Apache-2.0
"""A host with simulated hardware: a directory for its sysfs, no privilege, no kernel module."""

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from cyborg import errors
from cyborg.accelerator import pci
from cyborg.accelerator.sysfs import Sysfs
from cyborg.agent.hotplug import OnEvent
from cyborg.sim import catalogue, description, nvme_cli
from cyborg.sim.bus import Bus, Facts, Feature
from cyborg.sim.families import DriverFiles, Idxd, Net, Nvme
from cyborg.sim.features import Qat, Timecard
from cyborg.sim.fpga import Dfl, Fpga, Manager, Opae
from cyborg.sim.fpga_tools import FpgaTools
from cyborg.sim.mediated import Mediated
from cyborg.sim.numbers import natural
from cyborg.sim.overlay import Overlay
from cyborg.sim.tree import Tree
from cyborg.sim.vgpu import VendorVfio

FEATURES = (Mediated, VendorVfio, Qat, Dfl, Opae, Manager, Timecard, Net, Nvme, Idxd,
            DriverFiles)


class Host:
    """Cards can be plugged in and pulled out at any time, from any thread."""

    def __init__(self, path: Path | str) -> None:
        self.tree = Tree(Path(path))
        #: what a driver may run here: the tool's name -> what it does with its arguments
        self._fpga_tools = FpgaTools(self)
        self.tools: dict[str, Callable[..., str]] = {
            **self._fpga_tools.tools,
            'nvme': nvme_cli.NvmeCli(self.tree, lambda: self.bus.functions.values())}
        #: cards that are at hand, by name, as plug_in takes them
        self.spares: dict[str, Facts] = {}
        #: what is plugged in, as the kernel and the host's rules make it when they find it
        self.slots: dict[str, Facts] = {}
        self._groups: dict[str, str] = {}
        self._overlay = Overlay(self.tree)
        self.sysfs = Sysfs(self.tree.root, writer=self.tree.write, runner=self._run)
        self._boot()

    @classmethod
    def described(cls, path: Path | str, source: Path | str | Facts | None = None) -> Self:
        """One as a YAML file describes it; by default the demo's."""
        facts = source if isinstance(source, dict) else description.load(source)
        host = cls(path)
        host._groups = {each: str(group) for each, group in facts.get('groups', {}).items()}
        host._overlay = Overlay(host.tree, facts.get('files'), facts.get('links'))
        host._boot()
        try:
            for card in facts.get('cards', ()):
                host.plug_in(**card)
            host._prepare(facts)
        except (ValueError, OSError) as error:
            raise errors.ConfigError(why=f'The host cannot be as described: {error}.') from error
        host.spares = facts.get('spares', {})
        host.tree.path(description.KEPT).write_text(yaml.safe_dump(facts, sort_keys=False))
        return host

    def plug_in(self, model: str | None = None, at: str = '', vfs: int | None = None,
                vfs_by_rule: bool = False, **facts: Any) -> None:
        """Put a card of the catalogue ('10de:1eb8') into a slot ('0000:3b:00.0').

        ``vfs`` says how many virtual functions it has then, as if made by hand: after a rescan or
        a reboot it has none. ``vfs_by_rule`` says that the host has a udev rule that makes them
        whenever the card is found. More ``facts`` take the place of the catalogue's, as
        ``iommu=False``, ``numa_node=1``, ``driver=None`` for no driver. Without a model the
        facts, among them ``vendor``, ``device`` and ``class``, are all.
        """
        if not pci.ADDRESS.fullmatch(at):
            raise ValueError(f'{at} is no PCI address like 0000:3b:00.0')
        known = catalogue.card(model) if model else {
            'name': f'Card {facts["vendor"]}:{facts["device"]}'}
        card = {key: fact for key, fact in (known | facts).items() if fact is not None}
        if vfs is not None:
            if vfs > card.get('sriov', {}).get('total', 0):
                raise ValueError(f'{card["name"]} cannot have {vfs} virtual functions')
            card['sriov'] = card.get('sriov', {'total': 0}) | {'enabled': vfs}
        if vfs_by_rule and not card.get('sriov', {}).get('enabled'):
            raise ValueError(f'{card["name"]} has no virtual functions for a rule to make')
        with self.tree.change():
            if at in self.slots:
                raise ValueError(f'There is a card at {at} already')
            try:
                self.bus.add(at, card)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f'{card["name"]} at {at} lacks or mistakes a fact: '
                                 f'{error!r}') from error
            self.slots[at] = card if vfs_by_rule else _undivided(card)

    def plug_in_spare(self, name: str) -> None:
        """Put a spare card into the slot that its description names."""
        self.plug_in(**self.spares[name])

    def pull_out(self, address: str) -> None:
        """Take a card away, in use or not."""
        with self.tree.change():
            if address not in self.slots:
                raise ValueError(f'There is no card at {address}')
            del self.slots[address]
            if address in self.bus.functions:
                self.bus.remove(self.bus.functions[address])

    def reboot(self) -> None:
        """Everything that lives in the kernel alone is gone, virtual functions too, unless a
        rule makes them."""
        with self.tree.change():
            for name in ('bus', 'class', 'devices', 'kernel'):
                self.tree.remove(name)
            self._boot()

    def power_cycle(self) -> None:
        """Switch the host off and on: cards load what is in their flash."""
        self._fpga_tools.switch_on()
        self.reboot()

    def program(self, address: str, region: int, function: str | Sequence[str]) -> None:
        """Have a region of an FPGA do something else, as its bitstream would."""
        [card] = [each for each in self.fpgas if each.holds(address, region)]
        card.program(address, region, function)

    def have_guest_use(self, address: str) -> None:
        """Have a guest get a function, write wherever it can, and end. As libvirt does, this
        gives the function back to the driver that it was taken from."""
        with self.tree.change():
            function = self.bus.functions[address]
            is_kept = function.override == 'vfio-pci'
            self.bus.rebind(address, 'vfio-pci')
            function.is_soiled = True
            nvme_cli.soil(function)
            if not is_kept:
                self.bus.release(address)

    def traces(self, address: str) -> list[str]:
        """What guests left on a function: its registers, the namespaces of a disk."""
        function = self.bus.functions[address]
        return ['registers'] * function.is_soiled + nvme_cli.traces(function)

    @property
    def cards(self) -> dict[str, str]:
        """What is plugged in: address -> name."""
        return {address: card['name'] for address, card in self.slots.items()}

    def subscribe(self, on_event: OnEvent) -> Callable[[], None]:
        """Be called with what udev would tell, by the thread that caused it; answers how to
        stop that."""
        return self.tree.subscribe(lambda uevent: on_event(uevent.event))

    def monitor(self, on_event: OnEvent) -> 'SimMonitor':
        """What an agent takes instead of hotplug.UdevMonitor."""
        return SimMonitor(self, on_event)

    def _boot(self) -> None:
        self.bus = Bus(self.tree, self._features, self._groups, self._overlay)
        self.tree.file('proc/sys/kernel/random/boot_id', str(uuid.uuid4()))
        self.tree.trigger('bus/pci/rescan', self._rescan_if)
        self._overlay.show(None)
        self._rescan()

    def _prepare(self, facts: Facts) -> None:
        """What is there beyond the cards: who is bound to which driver, mediated devices, and
        files of drivers that are not simulated."""
        for address, driver in facts.get('bound', {}).items():
            self.bus.rebind(address, driver)
        for name, place in facts.get('mediated', {}).items():
            self.sysfs.write(f'bus/pci/devices/{place["at"]}/mdev_supported_types/'
                             f'{place["type"]}/create', name)
        for address in (None, *self.bus.functions):
            self._overlay.show(address)

    def _features(self, bus: Bus) -> list[Feature]:
        features: list[Feature] = [feature(bus) for feature in FEATURES]
        self.fpgas: list[Fpga] = [each for each in features if isinstance(each, Fpga)]
        return features

    def _rescan_if(self, text: str) -> None:
        if natural(text):
            self._rescan()

    def _rescan(self) -> None:
        for address, card in self.slots.items():
            if address not in self.bus.functions:
                self.bus.add(address, card)

    def _run(self, command: Sequence[str], timeout: float | None) -> str:
        if command[0] not in self.tools:
            raise FileNotFoundError(f'{command[0]} is not installed')
        return self.tools[command[0]](*command[1:])


def _undivided(card: Facts) -> Facts:
    return card | {'sriov': card['sriov'] | {'enabled': 0}} if 'sriov' in card else card


class SimMonitor:
    """Passes on a simulated host's events between start and stop."""

    def __init__(self, host: Host, on_event: OnEvent) -> None:
        self._host = host
        self._on_event = on_event
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        self._unsubscribe = self._unsubscribe or self._host.subscribe(self._on_event)

    def stop(self) -> None:
        if self._unsubscribe:
            self._unsubscribe()
            self._unsubscribe = None
