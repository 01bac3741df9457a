# SPDX-License-Identifier: Apache-2.0
"""Tools that load images into FPGAs: the kinds of images that each takes, and its arguments.

Nothing here depends on a card. A driver has a Loader for each tool that programs a region.
"""

import dataclasses
from collections.abc import Callable

from cyborg.accelerator import pci
from cyborg.accelerator.fpga_images import Image, Kind

ADDRESS = '*:??:??.?'  #: of a PCI function, in a pattern of ``runs``


@dataclasses.dataclass(frozen=True)
class Target:
    """The device that a tool programs."""

    function: pci.Function  #: the function that the tool uses
    region: int = 0
    device: str = ''  #: the device of the kernel that the tool uses: /dev/dfl-fme.0, fpga0


@dataclasses.dataclass(frozen=True)
class Tool:
    """One way to call a tool."""

    name: str
    kinds: frozenset[Kind]
    #: patterns of its commands, for Driver.runs
    runs: tuple[str, ...]
    words: Callable[[Target, Image], list[str]]
    #: it writes the flash, which has no effect before the host is switched off and on
    is_for_flash: bool = False


@dataclasses.dataclass(frozen=True)
class Loader:
    """A tool, and the device that it programs."""

    tool: Tool
    target: Target

    def command(self, image: Image) -> list[str]:
        return [self.tool.name, *self.tool.words(self.target, image)]


def _opae_place(target: Target, image: Image) -> list[str]:
    """Returns the arguments for a card. The domain is left out if it is 0, because older releases
    know no domains. Its short option -S means something else in all releases."""
    place = target.function.attach_info
    segment = ['--segment', f'0x{place["domain"]}'] if int(place['domain'], 16) else []
    return [
        *segment,
        '-B',
        f'0x{place["bus"]}',
        '-D',
        f'0x{place["device"]}',
        '-F',
        f'0x{place["function"]}',
        str(image.path),
    ]


#: OPAE, for the first region of a card: the tool knows no other.
FPGACONF = Tool(
    'fpgaconf',
    frozenset({Kind.GBS}),
    ('fpgaconf -B 0x?? -D 0x?? -F 0x? /*', 'fpgaconf --segment 0x* -B 0x?? -D 0x?? -F 0x? /*'),
    _opae_place,
)

#: The kernel's own driver of Intel's cards (DFL), for any region.
DFL_PORT = Tool(
    'cyborg-fpga-load',
    frozenset({Kind.GBS}),
    ('cyborg-fpga-load port /dev/dfl-fme.* * /*',),
    lambda target, image: ['port', target.device, str(target.region), str(image.path)],
)

#: OPAE, for a signed image and the first region of a card.
FPGASUPDATE_REGION = Tool(
    'fpgasupdate',
    frozenset({Kind.SIGNED_GBS}),
    (f'fpgasupdate /* {ADDRESS}',),
    lambda target, image: [str(image.path), target.function.address],
)

#: OPAE, for an image of the flash.
FPGASUPDATE = dataclasses.replace(
    FPGASUPDATE_REGION, kinds=frozenset({Kind.FIM}), is_for_flash=True
)


def _xrt(name: str) -> Tool:
    """Returns a tool of XRT that programs the part of a card that users see."""
    return Tool(
        name,
        frozenset({Kind.XCLBIN}),
        (f'{name} program --device {ADDRESS} --user /*',),
        lambda target, image: (
            f'program --device {target.function.address} --user'.split() + [str(image.path)]
        ),
    )


#: XRT, through the function for users.
XBUTIL = _xrt('xbutil')

#: XRT, through the function that manages a card.
XBMGMT = _xrt('xbmgmt')

#: XRT, for the flash. Without --force the tool would ask a question, which nobody answers.
XBMGMT_BASE = Tool(
    'xbmgmt',
    frozenset({Kind.XSABIN}),
    (f'xbmgmt program --device {ADDRESS} --base --image /* --force',),
    lambda target, image: [
        'program',
        '--device',
        target.function.address,
        '--base',
        '--image',
        str(image.path),
        '--force',
    ],
    is_for_flash=True,
)

#: The kernel's FPGA manager, if it has a file to load images with.
MANAGER = Tool(
    'cyborg-fpga-load',
    frozenset({Kind.RAW}),
    ('cyborg-fpga-load manager fpga* full /*', 'cyborg-fpga-load manager fpga* partial /*'),
    lambda target, image: [
        'manager',
        target.device,
        'partial' if image.is_partial else 'full',
        str(image.path),
    ],
)


def runs(*tools: Tool) -> tuple[str, ...]:
    """Returns the ``runs`` of a driver that uses these tools."""
    return tuple(dict.fromkeys(pattern for tool in tools for pattern in tool.runs))
