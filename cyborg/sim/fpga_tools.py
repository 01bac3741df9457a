# SPDX-License-Identifier: Apache-2.0
"""The tools that program simulated FPGAs. They are as strict as the real ones.

What is written to the flash of a card takes effect after a power cycle of the host.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cyborg.accelerator import fpga_kernel
from cyborg.accelerator.sysfs import Sysfs
from cyborg.sim import catalogue
from cyborg.sim.bus import Bus, Facts, Function
from cyborg.sim.fpga import FIRMWARE, Fpga
from cyborg.sim.tree import Tree

GBS = b'XeonFPGA\xb7GBSv001'
SIGNED = bytes.fromhex('19fdeab6')
XCLBIN = b'xclbin2\0'
GOLDEN = 'd0'
GUEST = 'vfio-pci'


class FpgaHost(Protocol):
    """The part of a host that the tools need."""

    tree: Tree
    sysfs: Sysfs
    bus: Bus
    fpgas: list[Fpga]
    slots: dict[str, Facts]


class FpgaTools:
    """The tools of one host."""

    def __init__(self, host: FpgaHost) -> None:
        self._host = host
        #: address -> the content written to the flash of the card
        self._flash: dict[str, dict[str, Any]] = {}
        self.tools: dict[str, Callable[..., str]] = {
            name: self._as_process(name, tool)
            for name, tool in {
                'fpgaconf': self._fpgaconf,
                'fpgasupdate': self._fpgasupdate,
                'cyborg-fpga-load': self._load,
                'xbutil': self._xbutil,
                'xbmgmt': self._xbmgmt,
            }.items()
        }

    @staticmethod
    def _as_process(name: str, tool: Callable[..., str]) -> Callable[..., str]:
        """Wrap a tool so that it returns its output or raises OSError, as a process does."""

        def run(*arguments: str) -> str:
            try:
                return tool(*arguments)
            except (Refused, fpga_kernel.Failed) as error:
                raise OSError(f'{name} ended with 1: {error}') from error

        return run

    def switch_on(self) -> None:
        """Start the cards with the content of their flash."""
        for address, content in self._flash.items():
            if address in self._host.slots:
                self._start(address, content)
        self._flash.clear()

    def forget_flash(self, address: str) -> None:
        """Forget the flash of a card that was pulled out."""
        self._flash.pop(address, None)

    # -- OPAE ------------------------------------------------------------------------------

    def _fpgaconf(self, *arguments: str) -> str:
        """fpgaconf [--segment domain] -B bus -D device -F function image"""
        options, [image] = _parsed(arguments, ('--segment', '-B', '-D', '-F'), files=1)
        segment, bus, device, function = (
            _number(options.get(option, '0')) for option in ('--segment', '-B', '-D', '-F')
        )
        self._reconfigure(
            f'{segment:04x}:{bus:02x}:{device:02x}.{function:x}', 0, _gbs(_content(image))
        )
        return ''

    def _fpgasupdate(self, *arguments: str) -> str:
        """fpgasupdate image address"""
        _, [image, address] = _parsed(arguments, (), files=2)
        content = _content(image)
        if not content.startswith(SIGNED):
            raise Refused('Unknown file type: the image is not signed')
        if self._driver(address) is None:
            raise Refused(f'{address} is not an FPGA device')
        kind = content[8]
        if kind == 2:
            self._reconfigure(address, 0, _gbs(content[1024:]))
        elif kind == 0:
            try:
                self._flash[address] = json.loads(content[1024:])
            except ValueError:
                raise Refused('the payload does not match its hash') from None
        else:
            raise Refused(f'payload type {kind} is not supported by the device')
        return 'Secure update OK\n'

    def _load(self, *arguments: str) -> str:
        """cyborg-fpga-load port /dev/dfl-fme.0 1 image, or manager fpga0 full image"""
        _, words = _parsed(arguments, (), files=4)
        if words[0] == 'manager' and words[2] in fpga_kernel.FLAGS:
            firmware = self._host.tree.path(FIRMWARE)
            firmware.mkdir(parents=True, exist_ok=True)
            fpga_kernel.load_manager(
                words[1],
                words[2],
                Path(words[3]),
                firmware,
                self._host.tree.path('class/fpga_manager'),
                self._host.sysfs.writer,
            )
        elif words[0] == 'port':
            name = words[1].removeprefix('/dev/')
            address = next(filter(None, (each.managed_by(name) for each in self._host.fpgas)), None)
            if address is None or not name.startswith('dfl-fme.'):
                raise Refused(f'{words[1]}: No such file or directory')
            self._reconfigure(address, _number(words[2]), _gbs(_content(words[3])))
        else:
            raise Refused(f'{words[0]} {words[2]} is not known')
        return ''

    def _reconfigure(self, address: str, region: int, description: Mapping[str, Any]) -> None:
        card = self._driver(address)
        if card is None:
            raise Refused('No suitable slots found')
        image = description['afu-image']
        if image['interface-uuid'].replace('-', '') != card.region_type(address):
            raise Refused('No suitable slots found: interface id mismatch')
        if not card.holds(address, region):
            raise Refused('Error opening accelerator: resource busy')
        function = self._host.bus.functions[address]
        ports = function.facts[card.key]['ports']
        width = len(ports[region]) if isinstance(ports[region], list) else 1
        first = sum(len(each) if isinstance(each, list) else 1 for each in ports[:region])
        users = function.parts[first : first + width] or [function]
        if any(each.driver == GUEST for each in users):
            raise Refused('Error opening accelerator: resource busy')
        card.program(
            address,
            region,
            [each['accelerator-type-uuid'] for each in image['accelerator-clusters']],
        )

    def _driver(self, address: str) -> Fpga | None:
        """Return the driver that shows a card, or None."""
        return next((each for each in self._host.fpgas if each.manager(address)), None)

    # -- XRT -------------------------------------------------------------------------------

    def _xbutil(self, *arguments: str) -> str:
        """xbutil program --device address --user image"""
        options = _xrt(arguments, ('--device', '--user'))
        card = self._bound(options['--device'], 'xocl')
        self._download(card, options['--user'])
        return 'INFO: The Xclbin was programmed.\n'

    def _xbmgmt(self, *arguments: str) -> str:
        """xbmgmt program --device address, with --user image or --base --image file --force"""
        if '--base' in arguments:
            options = _xrt(
                [each for each in arguments if each not in ('--base', '--force')],
                ('--device', '--image'),
            )
            card = self._bound(options['--device'], 'xclmgmt')
            _axlf(_content(options['--image']))
            if '--force' not in arguments:
                raise Refused('Are you sure you wish to proceed? [Y/n]: Action canceled.')
            self._flash[card.address] = {}
            return (
                '****************************************************\n'
                'Cold reboot machine to load the new image on device.\n'
            )
        options = _xrt(arguments, ('--device', '--user'))
        manager = self._bound(options['--device'], 'xclmgmt')
        slot = manager.address.rpartition('.')[0]
        users = [
            each
            for each in self._host.bus.functions.values()
            if each.address.rpartition('.')[0] == slot and each is not manager
        ]
        if not users:
            raise Refused('The card has no user partition')
        self._download(users[0], options['--user'])
        return 'INFO: The Xclbin was programmed.\n'

    def _bound(self, address: str, driver: str) -> Function:
        function = self._host.bus.functions.get(address)
        if function is None or function.driver != driver:
            raise Refused(f'Could not open device with BDF {address}')
        return function

    def _download(self, card: Function, path: str) -> None:
        interface, image = _axlf(_content(path))
        if card.driver == GUEST:
            raise Refused('Device or resource busy')
        slot = card.address.rpartition('.')[0]
        fitting = {
            line.replace('-', '')
            for each in self._host.bus.functions.values()
            if each.address.startswith(slot)
            for line in str(each.facts.get('driver_files', {}).get('interface_uuids', '')).split()
        }
        if interface.int and interface.hex not in fitting:
            raise Refused('xclbin does not match the shell on the card')
        files = card.facts.get('driver_files', {})
        card.facts = card.facts | {'driver_files': files | {'xclbinuuid': str(image)}}
        with self._host.tree.change():
            if card.driver == 'xocl':
                self._host.tree.set_text(f'{card.path}/xclbinuuid', str(image))

    # -- flash -----------------------------------------------------------------------------

    def _start(self, address: str, content: dict[str, Any]) -> None:
        card = self._host.slots[address]
        for key in {'dfl', 'opae'} & card.keys():
            card[key] = card[key] | content
        if card['device'].startswith(GOLDEN):
            manager = f'50{card["device"][2:]}'
            user = f'{int(manager, 16) + 1:04x}'
            slot = address.rpartition('.')[0]
            for place, device, driver in (
                (address, manager, 'xclmgmt'),
                (f'{slot}.1', user, 'xocl'),
            ):
                facts = catalogue.card(f'10ee:{device}')
                self._host.slots[place] = (
                    {'name': f'Xilinx Alveo {device}', 'driver': driver}
                    | facts
                    | {'class': '120000'}
                )


class Refused(Exception):
    """The error message of a tool."""


def _parsed(
    arguments: Sequence[str], options: Sequence[str], files: int
) -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and exactly ``files`` other words."""
    found, rest, words = {}, [], list(arguments)
    while words:
        word = words.pop(0)
        if word in options and words:
            found[word] = words.pop(0)
        elif word.startswith('-'):
            raise Refused(f'unrecognized option or missing value: {word}')
        else:
            rest.append(word)
    if len(rest) != files:
        raise Refused(f'{files} arguments are expected, not {len(rest)}')
    return found, rest


def _xrt(arguments: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    found, [command] = _parsed(arguments, options, files=1)
    if command != 'program' or set(found) != set(options):
        raise Refused(f'program needs {" and ".join(options)}')
    return found


def _number(text: str) -> int:
    try:
        return int(text, 16 if text.startswith('0x') else 10)
    except ValueError:
        raise Refused(f'{text} is not a number') from None


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Refused(f'{path}: {error.strerror}') from error


def gbs(region_type: str, functions: Sequence[str]) -> bytes:
    """Returns an image (GBS) that these tools load into a region. It has a description, like those
    that the vendor's tools make, and nothing to run."""
    clusters = [{'accelerator-type-uuid': each} for each in functions]
    image = {'interface-uuid': region_type, 'accelerator-clusters': clusters}
    description = json.dumps({'version': 1, 'afu-image': image}).encode()
    return GBS + len(description).to_bytes(4, 'little') + description + b'bits' * 1000


def _gbs(content: bytes) -> dict[str, Any]:
    """Return the metadata of a GBS."""
    if not content.startswith(GBS):
        raise Refused('Invalid bitstream')
    try:
        length = int.from_bytes(content[16:20], 'little')
        found: dict[str, Any] = json.loads(content[20 : 20 + length])
        uuid.UUID(found['afu-image']['interface-uuid'])
        for each in found['afu-image']['accelerator-clusters']:
            uuid.UUID(each['accelerator-type-uuid'])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Refused('Invalid bitstream metadata') from None
    if not content[20 + length :]:
        raise Refused('Invalid bitstream: no data')
    return found


def _axlf(content: bytes) -> tuple[uuid.UUID, uuid.UUID]:
    """Return the interface uuid and the uuid of an xclbin container."""
    if not content.startswith(XCLBIN) or len(content) < 456:
        raise Refused('Bad binary version')
    if int.from_bytes(content[304:312], 'little') != len(content):
        raise Refused('xclbin is truncated')
    return uuid.UUID(bytes=content[336:352]), uuid.UUID(bytes=content[416:432])
