# SPDX-License-Identifier: Apache-2.0
"""PCI functions, how they belong together, and the base class of drivers for PCI cards."""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.accelerator import cleaning, driver, health, traits
from cyborg.accelerator.sysfs import Node, Sysfs

DEVICES = 'bus/pci/devices'
ADDRESS = re.compile(
    r'(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})\.(?P<function>[0-7])'
)
#: In a Model: every vendor, or every device id, with a class code that the Model names.
ANY = '*'
BRIDGES = '06'  #: how their class code begins
#: Drivers that may be bound to the other functions of an IOMMU group when a guest gets one of
#: them.
HARMLESS = frozenset({None, 'vfio-pci', 'pci-stub'})
#: Files of the bus that take an address, and bind a driver to the function there or unbind it.
BINDING = ('drivers_probe', 'drivers/*/bind', 'drivers/*/unbind')
LONGEST_VERSION = 64
#: For ``subsystems`` of driver.Driver.
SUBSYSTEMS = ('pci',)
#: For ``options`` of driver.Driver. ``Driver`` reads it.
WHOLE_CARDS = cfg.BoolOpt(
    'whole_cards',
    default=True,
    help='Whether a card that can have virtual functions, but has none, is given out whole. Set '
    'this to false if something makes the virtual functions after the host has started.',
)


def resource_class_option(
    default: str,
    name: str = 'resource_class',
    help: str = 'Resource class of these devices in Placement.',
) -> cfg.StrOpt:
    """Returns an option that names a resource class. ``Driver`` reads ``resource_class`` and, for
    virtual functions, ``virtual_resource_class``."""
    return cfg.StrOpt(name, default=default, regex='^[A-Z0-9_]+$', help=help)


def virtual_resource_class_option(default: str) -> cfg.StrOpt:
    """Returns the option that names the resource class of virtual functions."""
    return resource_class_option(
        default, 'virtual_resource_class', 'Resource class of their virtual functions in Placement.'
    )


class Unusable(Exception):
    """A device is present but must not be given out. The message says why, and what helps."""


class Function(Node):
    """A PCI function. What cannot be read is empty or None. Ids and class are read once."""

    @classmethod
    def at(cls, sysfs: Sysfs, address: str) -> Self:
        return cls(sysfs.path / DEVICES / address, sysfs)

    @property
    def address(self) -> str:
        return self.name

    @functools.cached_property
    def vendor(self) -> str:
        return self._digits('vendor', 4)

    @functools.cached_property
    def device(self) -> str:
        return self._digits('device', 4)

    @functools.cached_property
    def subdevice(self) -> str:
        return self._digits('subsystem_device', 4)

    @functools.cached_property
    def class_code(self) -> str:
        return self._digits('class', 6)

    @property
    def numa_node(self) -> int | None:
        """Returns None if the firmware does not say."""
        node = self.number('numa_node')
        return node if node is not None and node >= 0 else None

    @property
    def driver(self) -> str | None:
        bound = self.link('driver')
        return bound.name if bound else None

    @property
    def iommu_group(self) -> str | None:
        group = self.link('iommu_group')
        return group.name if group else None

    @property
    def companions(self) -> list['Function']:
        """Returns the other functions of its IOMMU group, without bridges. They go to the same
        guest."""
        group = self.link('iommu_group')
        others = [
            Function.at(self.host, node.name)
            for node in (group.children('devices/*') if group else ())
            if node.name != self.address and ADDRESS.fullmatch(node.name)
        ]
        return [each for each in others if not each.class_code.startswith(BRIDGES)]

    @property
    def siblings(self) -> list['Function']:
        """Returns all functions of its card, including itself."""
        slot = self.address.rpartition('.')[0]
        return [
            Function.at(self.host, node.name)
            for node in (self.host / DEVICES).children(f'{slot}.[0-7]')
        ]

    @property
    def is_virtual(self) -> bool:
        # the link is enough: its target may be gone already
        return os.path.lexists(self.path / 'physfn')

    @property
    def physical(self) -> 'Function | None':
        """Returns its physical function, which is itself unless it is virtual."""
        if not self.is_virtual:
            return self
        physical = self.link('physfn')
        return Function.at(self.host, physical.name) if physical else None

    @property
    def virtual_functions(self) -> dict[int, 'Function']:
        """Returns its virtual functions by number. Their addresses are read, not computed, because
        they may be on other slots or buses."""
        found = {}
        for link in self.children('virtfn*'):
            number, target = link.name.removeprefix('virtfn'), self.link(link.name)
            if number.isdecimal() and target and ADDRESS.fullmatch(target.name):
                found[int(number)] = Function.at(self.host, target.name)
        return dict(sorted(found.items()))

    @property
    def attach_info(self) -> dict[str, str]:
        """Returns the parts of the address, as in sysfs: Nova puts them into libvirt's names."""
        parts = ADDRESS.fullmatch(self.address)
        return parts.groupdict() if parts else {}

    def _digits(self, name: str, count: int) -> str:
        text = (self.read(name) or '').lower()
        return text[2:] if re.fullmatch(f'0x[0-9a-f]{{{count}}}', text) else ''


def functions(sysfs: Sysfs) -> Iterator[Function]:
    """Yields all functions of the host, in the order of their addresses."""
    for node in (sysfs / DEVICES).children():
        if ADDRESS.fullmatch(node.name):
            yield Function(node.path, sysfs)


def addresses(sysfs: Sysfs, device: objects.Device) -> set[str]:
    """Returns the addresses of all functions of a device: those that manage it, their virtual
    functions, and those that guests receive or that hold what guests receive."""
    found = {
        address
        for part in device.deployables
        for handle in part.attach_handles
        if (address := address_of(handle.info))
    }
    for path in device.control_paths:
        if address := address_of(path.info):
            virtual = Function.at(sysfs, address).virtual_functions.values()
            found |= {address, *(each.address for each in virtual)}
    return found


def address_of(info: Mapping[str, str]) -> str | None:
    """Returns the address whose parts ``attach_info`` has; None if they are not an address."""
    try:
        address = '{domain}:{bus}:{device}.{function}'.format(**info)
    except KeyError:
        return None
    return address if ADDRESS.fullmatch(address) else None


@dataclasses.dataclass(frozen=True)
class Model:
    """An entry of a catalogue: a product. Ids are lower-case hex without 0x."""

    #: an id, or ANY
    vendor: str
    #: one id or several, or ANY
    devices: str | tuple[str, ...]
    #: the usual name, the maker first; a trait is made of it
    product: str
    resource_class: str
    #: further traits; {device} and {vendor} stand for the ids of the card
    traits: tuple[str, ...] = ()
    #: beginnings of the class code, and subsystem ids, if vendor and device id are not enough
    classes: tuple[str, ...] = ()
    subdevices: tuple[str, ...] = ()
    #: the resource class of its virtual functions, if it is another one
    virtual_class: str | None = None

    def fits(self, function: Function) -> bool:
        ids = (self.devices,) if isinstance(self.devices, str) else self.devices
        return (
            self.vendor in (function.vendor, ANY)
            and (ids == (ANY,) or function.device in ids)
            and (not self.classes or function.class_code.startswith(self.classes))
            and (not self.subdevices or function.subdevice in self.subdevices)
        )

    def of(self, function: Function) -> Self:
        """Returns the model with the ids of a card in its traits."""
        ids = {'device': function.device, 'vendor': function.vendor}
        return dataclasses.replace(
            self,
            traits=tuple(
                traits.custom(trait.removeprefix('CUSTOM_').format(**ids)) for trait in self.traits
            ),
        )


class Driver(driver.Driver):
    """Reports a device for each physical function that the catalogue names.

    A driver of cards that are passed through, by their virtual functions if they have any, has a
    ``name``, a ``type`` and a ``catalogue``. The first model that fits counts. Other drivers
    override ``slice``.
    """

    catalogue: ClassVar[tuple[Model, ...]]
    subsystems: ClassVar[tuple[str, ...]] = SUBSYSTEMS
    clean_steps: ClassVar[tuple[cleaning.Step, ...]] = (cleaning.RESET, cleaning.VERIFY)

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        #: address -> the number of PCI errors when its cleaning began
        self._errors: dict[str, dict[str, int]] = {}

    def discover(self) -> Iterator[objects.Device]:
        for function in functions(self.sysfs):
            model = None if function.is_virtual else self.model(function)
            if model:
                device = self.describe(function, model.of(function))
                if function.exists():  # else it was removed while it was read
                    yield device

    def model(self, function: Function) -> Model | None:
        """Returns the model of a physical function; None if it is not for this driver."""
        return next((each for each in self.catalogue if each.fits(function)), None)

    def claims(self, function: Function) -> bool:
        """Returns whether this is a function of one of its cards. It may be a virtual one."""
        return (physical := function.physical) is not None and self.model(physical) is not None

    def may_write(self, path: Path, text: str) -> bool:
        """Allows what ``writes`` declares, below a function that it claims. The innermost directory
        that is a function counts. Also allows to write the address of such a function to a file
        that binds or unbinds a driver."""
        bus = self.sysfs.path / 'bus/pci'
        if path.is_relative_to(bus):
            function = Function.at(self.sysfs, text) if ADDRESS.fullmatch(text) else None
            return (
                function is not None
                and self.claims(function)
                and not self.is_kept_for_host(function)
                and driver.is_one_of(path.relative_to(bus), BINDING)
            )
        place = next((each for each in path.parents if ADDRESS.fullmatch(each.name)), None)
        if place is None:
            return False
        function = Function.at(self.sysfs, place.name)
        return (
            function.real() == place
            and self.claims(function)
            and not self.is_kept_for_host(function)
            and driver.is_one_of(path.relative_to(place), (*self.writes, *cleaning.WRITES))
        )

    def steps_for(self, handle: objects.AttachHandle) -> Sequence[cleaning.Step]:
        """Returns the steps for the type of a handle. A mediated device is made for one guest and
        removed after it."""
        by_type = {
            objects.HandleType.PCI: self.clean_steps,
            objects.HandleType.MDEV: (cleaning.REMOVE,),
        }
        return by_type.get(handle.type, ())

    def clean(self, handle: objects.AttachHandle, step: str, deployable: str) -> None:
        if step == cleaning.REMOVE.name:
            self.detach(handle)
            return
        function = self.function(handle)
        self.require_unused(function)
        if step == cleaning.RESET.name:
            self._errors[function.address] = cleaning.errors_counted(function)
            cleaning.reset(function)
        elif step == cleaning.VERIFY.name:
            now = cleaning.errors_counted(function)
            cleaning.verify(function, self._errors.pop(function.address, now))
        else:
            super().clean(handle, step, deployable)

    def host_usage(self, function: Function) -> str | None:
        """Returns how the host uses a function that a guest had, in which case it must not be
        cleaned; None if the host does not use it."""
        return None

    def require_unused(self, function: Function) -> None:
        """Raise DriverFailed if the host uses a function that is to be cleaned."""
        use = (
            'its card is kept for it'
            if self.is_kept_for_host(function)
            else self.host_usage(function)
        )
        if use:
            raise errors.DriverFailed(
                name=self.name, why=f'{function.address} is used by the host: {use}.'
            )

    def versions(self, handle: objects.AttachHandle) -> dict[str, str]:
        function = self.function(handle)
        facts = {
            'kernel': self.sysfs.proc.read('sys/kernel/osrelease'),
            'kernel_driver': function.driver,
            'kernel_driver_version': function.read('driver/module/version'),
        }
        return {name: text[:LONGEST_VERSION] for name, text in facts.items() if text}

    def describe(self, function: Function, model: Model) -> objects.Device:
        """Returns the device. A device that is unusable has a fault and no deployables. A device
        that is unhealthy has a fault and keeps its deployables."""
        deployables = []
        try:
            self._leave_to_host(function)
            deployables = list(self.slice(function, model))
            fault = self.health(function)
        except (Unusable, traits.NotAName) as reason:
            fault = str(reason)
        board = {'product_id': function.device, 'controller': function.class_code}
        if function.numa_node is not None:
            board['numa_node'] = str(function.numa_node)
        control = self.control_function(function)
        return objects.Device(
            # A serial number would survive a change of slots. But whether sysfs shows it depends
            # on kernel, privilege and bound driver, and a key must not change while in use.
            key=self.key(function),
            type=self.type,
            vendor=function.vendor,
            model=model.product,
            driver_name=self.name,
            std_board_info=board,
            vendor_board_info=self.board_info(function),
            fault=fault,
            fault_if_changed=self.fault_if_changed(function)
            if _goes_whole(function, deployables)
            else None,
            control_paths=[objects.ControlPath(type='PCI', info=control.attach_info)]
            if control
            else [],
            deployables=deployables,
        )

    def key(self, function: Function) -> str:
        """Returns the key of the device."""
        return function.address

    def control_function(self, function: Function) -> Function | None:
        """Returns the function through which the host manages the device."""
        return function

    def slice(self, function: Function, model: Model) -> Iterable[objects.Deployable]:
        """Returns the deployables of a card. Here it is one, with a handle for each virtual
        function or, if there is none, for the card itself."""
        places = self.places(function)
        yield self.deployable(
            function.address,
            model,
            [self.passthrough(each, key) for key, each in places.items()],
            is_virtual=any(each.is_virtual for each in places.values()),
        )

    def places(self, function: Function) -> dict[str, Function]:
        """Returns the functions that are given to guests, by the keys of their handles."""
        parts = {f'vf{number}': each for number, each in function.virtual_functions.items()}
        if not parts:
            self.require_whole(function)
        return parts or {'pf': function}

    def require_whole(self, function: Function) -> None:
        """Raises Unusable if ``whole_cards`` says that no card is given out whole."""
        if self._option('whole_cards') is False and function.has('sriov_totalvfs'):
            raise Unusable(
                f'{function.address} has no virtual functions, and [{self.name}] '
                'whole_cards says that it is not given out whole: make some.'
            )

    def health(self, function: Function) -> str | None:
        """Returns why a card should not be given out for now; None if it is healthy."""
        limits = self.conf.health
        return health.fault(
            function,
            {'fatal': limits.tolerated_fatal_errors, 'non-fatal': limits.tolerated_nonfatal_errors},
        )

    def fault_if_changed(self, function: Function) -> str | None:
        """Returns the fault of a card that is given out whole, although its virtual functions
        were given out before; None if that is not a fault."""
        return health.loss(function)

    def board_info(self, function: Function) -> dict[str, str]:
        """Returns further facts about the card for the operator."""
        return {}

    def deployable(
        self,
        name: str,
        model: Model,
        handles: list[objects.AttachHandle],
        *more: str,
        is_virtual: bool = False,
        **values: object,
    ) -> objects.Deployable:
        """Returns a deployable with these handles, the traits of the model and ``more`` traits.
        Without handles it has no resource class and only holds other deployables."""
        product = traits.custom(self.type, model.product)
        return objects.Deployable(
            name=name,
            driver_name=self.name,
            resource_class=self.resource_class(model, is_virtual) if handles else None,
            traits=list(dict.fromkeys((product, *model.traits, *more))),
            num_accelerators=len(handles),
            attach_handles=handles,
            **values,
        )

    def resource_class(self, model: Model, is_virtual: bool = False) -> str:
        """Returns the resource class of the model, or that of the driver's option."""
        if is_virtual and model.virtual_class:
            return self._option('virtual_resource_class') or model.virtual_class
        return self._option('resource_class') or model.resource_class

    def _option(self, name: str) -> Any:
        """Returns the value of one of ``options``; None if the driver does not declare it."""
        return getattr(getattr(self.conf, self.name, None), name, None)

    def is_kept_for_host(self, function: Function) -> bool:
        """Returns whether the operator keeps the card of this function for the host."""
        kept = {address.lower() for address in self._option('host_addresses') or ()}
        physical = function.physical
        return bool(kept & {function.address, physical.address if physical else ''})

    def _leave_to_host(self, function: Function) -> None:
        if self.is_kept_for_host(function):
            raise Unusable(
                f'{function.address} is kept for the host by [{self.name}] host_addresses.'
            )

    def passthrough(self, function: Function, key: str) -> objects.AttachHandle:
        """Returns a handle that gives the function itself to a guest. Raises Unusable if that is
        impossible."""
        if function.iommu_group is None:
            raise Unusable(
                f'{function.address} is in no IOMMU group and cannot be given to a guest: '
                'switch the IOMMU on in the firmware and on the kernel command line.'
            )
        busy = [each.address for each in function.companions if each.driver not in HARMLESS]
        if busy:
            raise Unusable(
                f'{function.address} shares its IOMMU group with {", ".join(busy)}, which the '
                'host uses: a guest gets all of a group or nothing. Bind the others to vfio-pci, '
                'or use a slot with a group of its own.'
            )
        return objects.AttachHandle(key=key, type=objects.HandleType.PCI, info=function.attach_info)

    def function(self, handle: objects.AttachHandle) -> Function:
        """Returns the function of a handle."""
        address = address_of(handle.info)
        if address is None:
            raise errors.DriverFailed(
                name=self.name, why=f'handle {handle.uuid} has no PCI address: {handle.info}.'
            )
        return Function.at(self.sysfs, address)


def _goes_whole(function: Function, deployables: list[objects.Deployable]) -> bool:
    return any(
        handle.type == objects.HandleType.PCI
        and handle.info.items() >= function.attach_info.items()
        for part in deployables
        for handle in part.attach_handles
    )
