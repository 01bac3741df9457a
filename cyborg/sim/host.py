# SPDX-License-Identifier: Apache-2.0
"""A host with simulated hardware. It needs a directory, but no privilege or kernel module."""

import uuid
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from cyborg import errors
from cyborg.accelerator import pci
from cyborg.accelerator.sysfs import NotInstalled, Sysfs
from cyborg.agent.hotplug import OnEvent, UdevEvent
from cyborg.sim import catalogue, description, nvme, resets
from cyborg.sim.attribute_values import parse_unsigned
from cyborg.sim.bus import Bus, Facts, Feature, Function
from cyborg.sim.fpga import Dfl, Fpga, FpgaManager, Opae
from cyborg.sim.fpga_tools import FpgaTools
from cyborg.sim.kernel_drivers import DriverFiles, DriverSettings, Idxd, Net, Qat, Timecard
from cyborg.sim.mediated import Mediated
from cyborg.sim.nvme import Nvme
from cyborg.sim.overlay import Overlay
from cyborg.sim.tree import Tree
from cyborg.sim.vgpu import VendorVfio

FEATURES = (
    Mediated,
    VendorVfio,
    Qat,
    Dfl,
    Opae,
    FpgaManager,
    Timecard,
    Net,
    Nvme,
    Idxd,
    DriverFiles,
    DriverSettings,
)


class Host:
    """A host whose cards can be plugged in and pulled out at any time, by any thread."""

    bus: Bus  #: since the host was switched on

    def __init__(self, path: Path | str) -> None:
        self.tree = Tree(Path(path))
        #: the commands of this host: name -> a function of the arguments
        self._fpga_tools = FpgaTools(self)
        self.tools: dict[str, Callable[..., str]] = {
            **self._fpga_tools.tools,
            'nvme': nvme.NvmeCli(
                self.tree,
                lambda: self.bus.functions.values(),
                lambda function: self._disks.scan(function),
            ),
        }
        #: cards that plug_in_spare can plug in: name -> the arguments of plug_in
        self.spares: dict[str, Facts] = {}
        #: the cards that are plugged in, in the state in which a rescan finds them
        self.slots: dict[str, Facts] = {}
        #: the cards that make_ill has made ill: address -> kind of illness
        self.ill: dict[str, resets.Illness] = {}
        self._groups: dict[str, str] = {}
        self._overlay = Overlay(self.tree)
        self.sysfs = Sysfs(self.tree.root, writer=self.tree.write, runner=self._run)
        self._boot()

    @classmethod
    def described(cls, path: Path | str, source: Path | str | Facts | None = None) -> Self:
        """Create a host from a description; by default the demo's."""
        facts = source if isinstance(source, dict) else description.load(source)
        host = cls(path)
        host._groups = {each: str(group) for each, group in facts.get('groups', {}).items()}
        host._overlay = Overlay(host.tree, facts.get('files'), facts.get('links'))
        for name, output in facts.get('tools', {}).items():
            host.tools[name] = _tool_that_prints(output)
        host._boot()
        try:
            for card in facts.get('cards', ()):
                host.plug_in(**card)
            host._prepare(facts)
        except (ValueError, OSError) as error:
            raise errors.ConfigError(
                why=f'The host cannot be built as described: {error}.'
            ) from error
        host.spares = facts.get('spares', {})
        host.tree.path(description.KEPT).write_text(yaml.safe_dump(facts, sort_keys=False))
        return host

    def plug_in(
        self,
        model: str | None = None,
        at: str = '',
        vfs: int | None = None,
        vfs_by_rule: bool = False,
        **facts: Any,
    ) -> None:
        """Put a card of the catalogue ('10de:1eb8') into a slot ('0000:3b:00.0').

        ``vfs`` is the number of its virtual functions, as if created by hand: after a rescan or a
        reboot there are none. With ``vfs_by_rule`` the host has a udev rule that creates them
        whenever the card is found. ``facts`` replace those of the catalogue, for example
        ``iommu=False``, ``numa_node=1``, or ``driver=None`` for no driver. Without a model the
        facts must describe the card, with ``vendor``, ``device`` and ``class``.
        """
        if not pci.ADDRESS.fullmatch(at):
            raise ValueError(f'{at} is not a PCI address such as 0000:3b:00.0')
        known = (
            catalogue.card(model)
            if model
            else {'name': f'Card {facts["vendor"]}:{facts["device"]}'}
        )
        card = {key: fact for key, fact in (known | facts).items() if fact is not None}
        if vfs is not None:
            if vfs > card.get('sriov', {}).get('total', 0):
                raise ValueError(f'{card["name"]} cannot have {vfs} virtual functions')
            card['sriov'] = card.get('sriov', {'total': 0}) | {'enabled': vfs}
        if vfs_by_rule and not card.get('sriov', {}).get('enabled'):
            raise ValueError(f'{card["name"]} has no virtual functions that a rule could create')
        with self.tree.change():
            if at in self.slots:
                raise ValueError(f'There is a card at {at} already')
            try:
                self.bus.add(at, card)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f'{card["name"]} at {at} has a missing or wrong fact: {error!r}'
                ) from error
            self.slots[at] = card if vfs_by_rule else _undivided(card)

    def plug_in_spare(self, name: str) -> None:
        """Plug in a spare card in the slot that its description names."""
        self.plug_in(**self.spares[name])

    def pull_out(self, address: str) -> None:
        """Remove a card, also if it is in use."""
        with self.tree.change():
            if address not in self.slots:
                raise ValueError(f'There is no card at {address}')
            del self.slots[address]
            self.ill.pop(address, None)
            if address in self.bus.functions:
                self.bus.remove(self.bus.functions[address])
            for fpga in self.fpgas:
                fpga.lose_power(address)
            self._fpga_tools.forget_flash(address)

    def make_ill(self, address: str, kind: resets.Illness = resets.Illness.ERRORS) -> None:
        """Give a card a fault. It is well again after ``heal`` or a reboot."""
        with self.tree.change():
            resets.make_ill(self.tree, self._card(address), resets.Illness(kind))
            self.ill[address] = resets.Illness(kind)

    def heal(self, address: str) -> None:
        """Make a card well again, as a reset by hand does."""
        with self.tree.change():
            resets.heal(self.tree, self._card(address))
            self.ill.pop(address, None)

    def reboot(self) -> None:
        """Restart the kernel. Its state is lost; virtual functions, too, unless a rule creates
        them."""
        with self.tree.change():
            for name in ('bus', 'class', 'devices', 'kernel'):
                self.tree.remove(name)
            self._boot()

    def power_cycle(self) -> None:
        """Switch the host off and on, so that cards load the content of their flash."""
        self._fpga_tools.switch_on()
        self.reboot()

    def program(self, address: str, region: int, function: str | Sequence[str]) -> None:
        """Replace the functions of a region of an FPGA, as loading a bitstream does."""
        [card] = [each for each in self.fpgas if each.holds(address, region)]
        card.program(address, region, function)

    def have_guest_use(self, address: str) -> None:
        """Simulate a guest that uses a function, writes wherever it can, and ends. Afterwards the
        function is bound to its former driver, as libvirt does."""
        with self.tree.change():
            function = self.bus.functions[address]
            is_kept = function.override == 'vfio-pci'
            self.bus.rebind(address, 'vfio-pci')
            function.is_dirty = True
            nvme.write_as_guest(function)
            if not is_kept:
                self.bus.release(address)

    def traces(self, address: str) -> list[str]:
        """Return what guests left on a function: registers, the namespaces of a disk."""
        function = self.bus.functions[address]
        return ['registers'] * function.is_dirty + nvme.traces(function)

    @property
    def cards(self) -> dict[str, str]:
        """The cards that are plugged in: address -> name."""
        return {address: card['name'] for address, card in self.slots.items()}

    def subscribe(self, on_event: OnEvent) -> Callable[[], None]:
        """Call ``on_event`` for each event that udev would deliver, in the thread that caused it.
        Returns a function that ends the subscription."""
        return self.tree.subscribe(lambda uevent: on_event(uevent.event))

    def monitor(self, on_event: OnEvent, subsystems: Collection[str]) -> 'SimMonitor':
        """Return a monitor that replaces hotplug.UdevMonitor in an agent."""
        return SimMonitor(self, on_event, subsystems)

    def _card(self, address: str) -> Function:
        if address not in self.slots:
            raise ValueError(f'There is no card at {address}')
        if address not in self.bus.functions:
            raise ValueError(f'The card at {address} was removed from the bus')
        return self.bus.functions[address]

    def _boot(self) -> None:
        self.ill.clear()
        self.bus = Bus(self.tree, self._features, self._groups, self._overlay)
        self.tree.file('proc/sys/kernel/random/boot_id', str(uuid.uuid4()))
        self.tree.trigger('bus/pci/rescan', self._rescan_if)
        self._overlay.show(None)
        self._rescan()

    def _prepare(self, facts: Facts) -> None:
        """Apply the rest of a description: bound drivers, mediated devices, and the files of
        drivers that are not simulated."""
        for address, driver in facts.get('bound', {}).items():
            self.bus.rebind(address, driver)
        for name, place in facts.get('mediated', {}).items():
            self.sysfs.write(
                f'bus/pci/devices/{place["at"]}/mdev_supported_types/{place["type"]}/create', name
            )
        for address in (None, *self.bus.functions):
            self._overlay.show(address)

    def _features(self, bus: Bus) -> list[Feature]:
        features: list[Feature] = [feature(bus) for feature in FEATURES]
        self.fpgas: list[Fpga] = [each for each in features if isinstance(each, Fpga)]
        [self._disks] = [each for each in features if isinstance(each, Nvme)]
        return features

    def _rescan_if(self, text: str) -> None:
        if parse_unsigned(text):
            self._rescan()

    def _rescan(self) -> None:
        for address, card in self.slots.items():
            if address not in self.bus.functions:
                self.bus.add(address, card)

    def _run(self, command: Sequence[str], timeout: float | None) -> str:
        if command[0] not in self.tools:
            raise NotInstalled.of(command[0])
        return self.tools[command[0]](*command[1:])


def _tool_that_prints(text: str) -> Callable[..., str]:
    return lambda *arguments: text


def _undivided(card: Facts) -> Facts:
    return card | {'sriov': card['sriov'] | {'enabled': 0}} if 'sriov' in card else card


class SimMonitor:
    """Passes on a simulated host's events of some udev subsystems between start and stop."""

    def __init__(self, host: Host, on_event: OnEvent, subsystems: Collection[str]) -> None:
        self._host = host
        self._on_event = on_event
        self._subsystems = frozenset(subsystems)
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        self._unsubscribe = self._unsubscribe or self._host.subscribe(self._pass_on)

    def stop(self) -> None:
        if self._unsubscribe:
            self._unsubscribe()
            self._unsubscribe = None

    def _pass_on(self, event: UdevEvent) -> None:
        if event.subsystem in self._subsystems:
            self._on_event(event)
