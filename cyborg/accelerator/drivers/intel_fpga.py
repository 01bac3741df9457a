# SPDX-License-Identifier: Apache-2.0
"""Intel FPGAs, with the kernel's own driver (DFL) or the older one that is installed
separately (OPAE)."""

import dataclasses
import itertools
import re
from collections.abc import Iterator

from oslo_config import cfg

from cyborg.accelerator import fpga, fpga_tools, pci
from cyborg.accelerator.fpga_tools import Loader, Target
from cyborg.accelerator.sysfs import Node, Sysfs

VENDOR = '8086'
CLASSES = ('1200',)
SHELL = re.compile('(0x)?[0-9a-f]{1,32}')
SHELL_FACTS = ('bitstream_metadata', 'cache_size', 'fabric_version', 'ports_num', 'socket_id')
LONGEST_FACT = 64
LONGEST_ID = 4  #: digits of the id of a port
FIRST = 0  #: the only region that OPAE's tools can program


@dataclasses.dataclass(frozen=True)
class Layout:
    """The paths of a kernel driver's files, below the function."""

    manager: str  #: manages the card; only the physical function has it
    region_type: str  #: below the manager; the same for all regions
    port: str  #: the part of a region that a guest uses


LAYOUTS = (
    # DFL, the driver in the kernel
    Layout(
        'fpga_region/region*/dfl-fme.*',
        'dfl-fme-region.*/fpga_region/region*/compat_id',
        'fpga_region/region*/dfl-port.*',
    ),
    # the older driver of OPAE, which is installed separately
    Layout(
        'fpga/intel-fpga-dev.*/intel-fpga-fme.*',
        'pr/interface_id',
        'fpga/intel-fpga-dev.*/intel-fpga-port.*',
    ),
)


def _model(product: str, *devices: str, subdevices: tuple[str, ...] = ()) -> pci.Model:
    return pci.Model(
        VENDOR, devices, f'Intel {product}', 'FPGA', classes=CLASSES, subdevices=subdevices
    )


class IntelFpgaDriver(fpga.Driver):
    """A guest reaches a region through a virtual function, or a card's only one through itself."""

    name = 'intel_fpga_driver'
    maker = 'INTEL'
    options = (pci.resource_class_option('FPGA'), pci.WHOLE_CARDS)
    runs = fpga_tools.runs(
        fpga_tools.FPGACONF,
        fpga_tools.DFL_PORT,
        fpga_tools.FPGASUPDATE_REGION,
        fpga_tools.FPGASUPDATE,
    )
    catalogue = (
        _model('PAC Arria10', '09c4'),
        _model('Arria10 integrated', 'bcbd', 'bcc0'),
        _model('PAC D5005', '0b2b'),
        _model('PAC N3000', '0b30'),
        _model('N6000', 'bcce', subdevices=('1770',)),
        _model('N6001', 'bcce', subdevices=('1771',)),
        _model('C6100', 'bcce', subdevices=('17d4',)),
        _model('PAC D5005', 'bcce', subdevices=('138d',)),
        _model('DFL', 'bcce'),
        pci.Model('1c2c', '1000', 'Silicom N5010', 'FPGA', classes=CLASSES),
        pci.Model('1c2c', '1001', 'Silicom N5011', 'FPGA', classes=CLASSES),
    )

    def __init__(self, conf: cfg.ConfigOpts, sysfs: Sysfs) -> None:
        super().__init__(conf, sysfs)
        #: address of a virtual function -> the id of its port, and its content, as last read
        self._port_ids: dict[str, int] = {}
        self._contents: dict[str, str] = {}

    def lack(self, card: pci.Function) -> str | None:
        manager = _manager(card)
        if manager is not None and manager.number('ports_num') == 0:
            return (
                f'{card.address} has no region: flash an image with regions with fpgasupdate '
                'and switch the host off and on.'
            )
        return None

    def flash_loaders(self, card: pci.Function) -> tuple[Loader, ...]:
        return (Loader(fpga_tools.FPGASUPDATE, Target(card)),)

    def regions(self, card: pci.Function) -> Iterator[fpga.Region]:
        types = self._region_types(card)
        for number, parts in self._places(card).items():
            silent = [
                f'{each.address} does not show which region it is'
                for each in parts
                if each.is_virtual and each.driver != fpga.GUEST and _port_id(each) is None
            ]
            yield fpga.Region(
                number,
                tuple(self._place(card, each, is_alone=len(parts) == 1) for each in parts),
                types,
                loaders=tuple(self._loaders(card, number)),
                obstacle=next(iter(silent), None),
            )

    def _place(self, card: pci.Function, part: pci.Function, is_alone: bool) -> fpga.Place:
        content = fpga.function(fpga.text(part, (f'{each.port}/afu_id' for each in LAYOUTS)))
        if is_alone:
            return fpga.Place(part, content)
        # its content decides to which deployable it belongs, also while a guest has it
        if content is not None:
            self._contents[part.address] = content
        elif part.driver == fpga.GUEST:
            content = self._contents.get(part.address)
        number = next(
            (each for each, function in card.virtual_functions.items() if function == part), ''
        )
        return fpga.Place(part, content, f'vf{number}')

    @staticmethod
    def _loaders(card: pci.Function, number: int) -> Iterator[Loader]:
        if number == FIRST:
            yield Loader(fpga_tools.FPGACONF, Target(card))
            yield Loader(fpga_tools.FPGASUPDATE_REGION, Target(card))
        elif (manager := _manager(card)) and manager.name.startswith('dfl-fme.'):
            yield Loader(fpga_tools.DFL_PORT, Target(card, number, f'/dev/{manager.name}'))

    def shell(self, card: pci.Function) -> tuple[str | None, fpga.Facts]:
        shell = fpga.text(card, (f'{each.manager}/bitstream_id' for each in LAYOUTS))
        if not shell or not SHELL.fullmatch(shell):
            return None, {}
        facts = {
            name: fpga.text(card, (f'{each.manager}/{name}' for each in LAYOUTS))
            for name in SHELL_FACTS
        }
        return shell, {key: value[:LONGEST_FACT] for key, value in facts.items() if value}

    @staticmethod
    def _region_types(card: pci.Function) -> tuple[str, ...]:
        """Returns the type of the shell, which all regions share."""
        return fpga.uuids(
            fpga.text(card, (f'{each.manager}/{each.region_type}' for each in LAYOUTS))
        )[:1]

    def _places(self, card: pci.Function) -> dict[int, list[pci.Function]]:
        """Returns the PCI functions through which guests reach each region."""
        manager = _manager(card)
        ports = manager.number('ports_num') if manager is not None else None
        if parts := list(card.virtual_functions.values()):
            return self._by_port(card, parts, ports)
        self.require_whole(card)
        if ports is not None and ports > 1:
            raise pci.Unusable(
                f'{card.address} has {ports} regions but no virtual functions through '
                'which they could go to different guests: release its ports with '
                f'pci_device {card.address} vf {ports}.'
            )
        # while a guest has it, the driver that shows the regions is not bound
        if manager is not None or card.driver == fpga.GUEST:
            return {FIRST: [card]}
        raise pci.Unusable(
            f'{card.address} is not bound to a driver for FPGAs (dfl-pci or '
            'intel-fpga-pci), so its regions are not known.'
        )

    def _by_port(
        self, card: pci.Function, parts: list[pci.Function], ports: int | None
    ) -> dict[int, list[pci.Function]]:
        """Returns the virtual functions by the id of their port. Some ports may not have a virtual
        function.

        The id of a function that a guest has cannot be read. The function keeps the id that was
        read last. If there is none, it gets an id that no other function has, in the order of the
        functions. Several functions can have one port only if the card has fewer ports than
        functions.
        """
        is_shared = bool(ports) and ports is not None and ports < len(parts)
        found: dict[int, list[pci.Function]] = {}
        for part in parts:
            number = _port_id(part)
            if number is not None:
                self._port_ids[part.address] = number
                found.setdefault(number, []).append(part)
        for number, same in found.items():
            if len(same) > 1 and not is_shared:
                raise pci.Unusable(
                    f'{same[0].address} and {same[1].address} both say that '
                    f'they are port {number} of {card.address}.'
                )
        silent = [part for part in parts if not any(part in each for each in found.values())]
        for part in list(silent):
            number = self._port_ids.get(part.address)
            if number is not None and (is_shared or number not in found):
                found.setdefault(number, []).append(part)
                silent.remove(part)
        if ports == 1:
            found.setdefault(next(iter(found), FIRST), []).extend(silent)
        else:
            taken = found.keys() | {
                port.number('id') for layout in LAYOUTS for port in card.children(layout.port)
            }
            free = (number for number in itertools.count() if number not in taken)
            found |= {number: [part] for part, number in zip(silent, free, strict=False)}
        return {number: sorted(same, key=parts.index) for number, same in sorted(found.items())}


def _manager(card: pci.Function) -> Node | None:
    """Returns the manager, which only the card itself has; None if its driver is not bound."""
    return next((node for layout in LAYOUTS for node in card.children(layout.manager)), None)


def _port_id(function: pci.Function) -> int | None:
    told = fpga.text(function, (f'{each.port}/id' for each in LAYOUTS))
    return int(told) if told and told.isdecimal() and len(told) <= LONGEST_ID else None
