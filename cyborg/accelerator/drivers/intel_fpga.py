# SPDX-License-Identifier: Apache-2.0
"""Intel FPGAs, with the kernel's own driver (DFL) or the older one beside it (OPAE)."""

import dataclasses
import itertools
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from oslo_config import cfg

from cyborg import errors
from cyborg.accelerator import fpga, pci
from cyborg.accelerator.sysfs import Sysfs

VENDOR = '8086'
CLASSES = ('1200',)
#: How an image (GBS) begins; the length of a description in JSON follows, then that.
MAGIC = b'XeonFPGA\xb7GBSv001'
LONGEST_DESCRIPTION = 64 * 1024
SHELL = re.compile('(0x)?[0-9a-f]{1,32}')
SHELL_FACTS = ('bitstream_metadata', 'cache_size', 'fabric_version', 'ports_num', 'socket_id')
LONGEST_FACT = 64
LONGEST_ID = 4  #: of a port: more digits are noise
FIRST = 0  #: the only region that fpgaconf reaches


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a host driver keeps its files, below the function."""

    manager: str  #: the card's own: only the physical function has it
    region_type: str  #: which images fit, below the manager; the same for all regions
    port: str  #: a region as a guest meets it


LAYOUTS = (
    # in the kernel: DFL
    Layout('fpga_region/region*/dfl-fme.*',
           'dfl-fme-region.*/fpga_region/region*/compat_id',
           'fpga_region/region*/dfl-port.*'),
    # beside the kernel: the older OPAE driver
    Layout('fpga/intel-fpga-dev.*/intel-fpga-fme.*', 'pr/interface_id',
           'fpga/intel-fpga-dev.*/intel-fpga-port.*'),
)


def _model(product: str, *devices: str, subdevices: tuple[str, ...] = ()) -> pci.Model:
    return pci.Model(VENDOR, devices, f'Intel {product}', 'FPGA', classes=CLASSES,
                     subdevices=subdevices)


class IntelFpgaDriver(fpga.Driver):
    """A guest reaches a region through a virtual function, or a card's only one through itself."""

    name = 'intel_fpga_driver'
    maker = 'INTEL'
    runs = ('fpgaconf -B 0x?? -D 0x?? -F 0x? /*', 'fpgaconf -S 0x* -B 0x?? -D 0x?? -F 0x? /*')
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
        #: address of a virtual function -> the id of its port, as it was last told
        self._port_ids: dict[str, int] = {}

    def regions(self, card: pci.Function) -> Iterator[fpga.Region]:
        types = self._region_types(card)
        for number, place in self._places(card).items():
            function = fpga.function(
                fpga.text(place, (f'{each.port}/afu_id' for each in LAYOUTS)))
            yield fpga.Region(number, place, types, function, is_programmable=number == FIRST)

    def shell(self, card: pci.Function) -> tuple[str | None, fpga.Facts]:
        shell = fpga.text(card, (f'{each.manager}/bitstream_id' for each in LAYOUTS))
        if not shell or not SHELL.fullmatch(shell):
            return None, {}
        facts = {name: fpga.text(card, (f'{each.manager}/{name}' for each in LAYOUTS))
                 for name in SHELL_FACTS}
        return shell, {key: value[:LONGEST_FACT] for key, value in facts.items() if value}

    def program(self, deployable: str, image: Path) -> None:
        """The image's own description must name the region's type: another may hang the card."""
        address, _, region = deployable.rpartition('_region')
        card = pci.Function.at(self.sysfs, address)
        try:
            place = self._places(card)[int(region)]
        except (pci.Unusable, KeyError, ValueError) as error:
            raise self._refusal(deployable, f'it is not there: {error}') from error
        wanted, present = _interface(image), self._region_types(card)
        if wanted is None or wanted not in present:
            taken = ', '.join(present) or 'nothing we know'
            raise self._refusal(deployable, f'the image is for {wanted or "nothing we know"}, '
                                            f'the region takes {taken}')
        if place.driver == 'vfio-pci':
            raise self._refusal(deployable, 'a guest has it')
        if place.is_virtual and _port_id(place) is None:
            raise self._refusal(deployable, f'{place.address} does not tell which region it is')
        if int(region) != FIRST:
            raise self._refusal(deployable, 'fpgaconf reaches the first region only')
        try:
            self.sysfs.run('fpgaconf', *_place_options(card), str(image))
        except OSError as error:
            raise self._refusal(deployable, str(error)) from error

    def may_run(self, command: Sequence[str]) -> bool:
        """On its own cards only."""
        places = [list(_place_options(card)) for card in pci.functions(self.sysfs)
                  if self.claims(card)]
        return super().may_run(command) and list(command[1:-1]) in places

    def _refusal(self, deployable: str, why: str) -> errors.DriverFailed:
        return errors.DriverFailed(
            name=self.name, why=f'{deployable} cannot be programmed: {why}.')

    @staticmethod
    def _region_types(card: pci.Function) -> tuple[str, ...]:
        """One: that of the shell, which all regions share."""
        return fpga.uuids(fpga.text(
            card, (f'{each.manager}/{each.region_type}' for each in LAYOUTS)))[:1]

    def _places(self, card: pci.Function) -> dict[int, pci.Function]:
        """By region, the function through which a guest reaches it."""
        if parts := card.virtual_functions:
            return self._by_port(card, list(parts.values()))
        self.require_whole(card)
        for layout in LAYOUTS:
            for manager in card.children(layout.manager):
                ports = manager.number('ports_num')
                if ports is not None and ports > 1:
                    raise pci.Unusable(
                        f'{card.address} has {ports} regions but no virtual functions through '
                        'which they could go to different guests: release its ports with '
                        f'pci_device {card.address} vf {ports}.')
                return {0: card}
        if card.driver == 'vfio-pci':
            return {0: card}  # a guest has it, so the driver that knows more is not there
        raise pci.Unusable(f'{card.address} is not bound to a driver for FPGAs (dfl-pci or '
                           'intel-fpga-pci), so its regions are not known.')

    def _by_port(self, card: pci.Function,
                 parts: list[pci.Function]) -> dict[int, pci.Function]:
        """Virtual functions by the id of their port: only some ports may have been released.

        One that a guest has does not tell its id. It keeps the id that it told last, else it
        gets one of those that nobody else has, in the order of the functions.
        """
        told = {part: number for part in parts if (number := _port_id(part)) is not None}
        found = {number: part for part, number in told.items()}
        for part, number in told.items():
            self._port_ids[part.address] = number
            if found[number] is not part:
                raise pci.Unusable(f'{found[number].address} and {part.address} both say that '
                                   f'they are port {number} of {card.address}.')
        silent = [part for part in parts if part not in told]
        for part in silent:
            if part.address in self._port_ids:
                found.setdefault(self._port_ids[part.address], part)
        taken = found.keys() | {port.number('id') for layout in LAYOUTS
                                for port in card.children(layout.port)}
        free = (number for number in itertools.count() if number not in taken)
        found |= {next(free): part for part in silent if part not in found.values()}
        return dict(sorted(found.items()))


def _port_id(function: pci.Function) -> int | None:
    told = fpga.text(function, (f'{each.port}/id' for each in LAYOUTS))
    return int(told) if told and told.isdecimal() and len(told) <= LONGEST_ID else None


def _place_options(card: pci.Function) -> Iterator[str]:
    """Where a card sits, as fpgaconf wants it."""
    options = {'domain': '-S', 'bus': '-B', 'device': '-D', 'function': '-F'}
    for part, value in card.attach_info.items():
        if int(value, 16) or part != 'domain':  # older ones know no domains
            yield from (options[part], f'0x{value}')


def _interface(image: Path) -> str | None:
    """The type of region that an image is made for; None if it does not say."""
    try:
        with open(image, 'rb') as file:
            magic, length = file.read(len(MAGIC)), int.from_bytes(file.read(4), 'little')
            if magic != MAGIC or length > LONGEST_DESCRIPTION:
                return None
            description = json.loads(file.read(length))
        return str(uuid.UUID(description['afu-image']['interface-uuid']))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
