# SPDX-License-Identifier: Apache-2.0
"""Tools that load images into FPGAs: which images each of them takes, and how it is called.

Nothing here knows a card: a driver says which tools reach which region, with a Loader for each.
"""

import dataclasses
from collections.abc import Callable

from cyborg.accelerator import pci
from cyborg.accelerator.fpga_images import Image, Kind

ADDRESS = '*:??:??.?'  #: of a PCI function, in a pattern of ``runs``


@dataclasses.dataclass(frozen=True)
class Target:
    """What a tool is pointed at."""

    function: pci.Function  #: through which it works
    region: int = 0
    device: str = ''  #: a device of the kernel that it uses: /dev/dfl-fme.0, fpga0


@dataclasses.dataclass(frozen=True)
class Tool:
    """A tool, in one of the ways to call it."""

    name: str
    kinds: frozenset[Kind]
    #: the patterns of its commands, as in Driver.runs
    runs: tuple[str, ...]
    words: Callable[[Target, Image], list[str]]
    #: it writes the flash, so that nothing changes before the host is switched off and on
    is_for_flash: bool = False


@dataclasses.dataclass(frozen=True)
class Loader:
    """A tool, and what it is pointed at."""

    tool: Tool
    target: Target

    def command(self, image: Image) -> list[str]:
        return [self.tool.name, *self.tool.words(self.target, image)]


def _opae_place(target: Target, image: Image) -> list[str]:
    """Where a card sits. Its domain is left out if it is 0: older releases know none, and to all
    of them -S is something else."""
    place = target.function.attach_info
    segment = ['--segment', f'0x{place["domain"]}'] if int(place['domain'], 16) else []
    return [*segment, '-B', f'0x{place["bus"]}', '-D', f'0x{place["device"]}',
            '-F', f'0x{place["function"]}', str(image.path)]


#: OPAE, a region: the first one of a card, as it knows no other.
FPGACONF = Tool(
    'fpgaconf', frozenset({Kind.GBS}),
    ('fpgaconf -B 0x?? -D 0x?? -F 0x? /*',
     'fpgaconf --segment 0x* -B 0x?? -D 0x?? -F 0x? /*'), _opae_place)

#: The kernel's own driver of Intel's cards (DFL), any region.
DFL_PORT = Tool(
    'cyborg-fpga-load', frozenset({Kind.GBS}), ('cyborg-fpga-load port /dev/dfl-fme.* * /*',),
    lambda target, image: ['port', target.device, str(target.region), str(image.path)])

#: OPAE, a signed image for the first region of a card…
FPGASUPDATE_REGION = Tool(
    'fpgasupdate', frozenset({Kind.SIGNED_GBS}), (f'fpgasupdate /* {ADDRESS}',),
    lambda target, image: [str(image.path), target.function.address])

#: …and one for its flash.
FPGASUPDATE = dataclasses.replace(
    FPGASUPDATE_REGION, kinds=frozenset({Kind.FIM}), is_for_flash=True)

#: XRT, through the function for users.
XBUTIL = Tool(
    'xbutil', frozenset({Kind.XCLBIN}), (f'xbutil program --device {ADDRESS} --user /*',),
    lambda target, image: ['program', '--device', target.function.address,
                           '--user', str(image.path)])

#: XRT, through the function that manages a card.
XBMGMT = Tool(
    'xbmgmt', frozenset({Kind.XCLBIN}), (f'xbmgmt program --device {ADDRESS} --user /*',),
    lambda target, image: ['program', '--device', target.function.address,
                           '--user', str(image.path)])

#: XRT, the flash. It asks nothing with --force: nobody is there to answer.
XBMGMT_BASE = Tool(
    'xbmgmt', frozenset({Kind.XSABIN}),
    (f'xbmgmt program --device {ADDRESS} --base --image /* --force',),
    lambda target, image: ['program', '--device', target.function.address, '--base',
                           '--image', str(image.path), '--force'], is_for_flash=True)

#: The kernel's FPGA manager, where it has a file to load images with.
MANAGER = Tool(
    'cyborg-fpga-load', frozenset({Kind.RAW}),
    ('cyborg-fpga-load manager fpga* full /*', 'cyborg-fpga-load manager fpga* partial /*'),
    lambda target, image: ['manager', target.device, 'partial' if image.is_partial else 'full',
                           str(image.path)])


def runs(*tools: Tool) -> tuple[str, ...]:
    """What a driver with these tools declares."""
    return tuple(dict.fromkeys(pattern for tool in tools for pattern in tool.runs))
