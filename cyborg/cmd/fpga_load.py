# SPDX-License-Identifier: Apache-2.0
"""Loads an image into an FPGA through the kernel, for cards without a vendor tool.

``cyborg-fpga-load port /dev/dfl-fme.0 1 image.gbs`` loads a GBS into a region of a card with the
kernel's own driver (DFL). ``cyborg-fpga-load manager fpga0 full image.bin`` has the kernel's FPGA
manager load a file, where that has the attribute ``firmware``. The agent runs it.
"""

import re
import sys
from pathlib import Path

from cyborg.accelerator.fpga_kernel import (
    FLAGS,
    Failed,
    load_manager,
    load_port,
    removed_if_killed,
)


def main() -> None:
    words = sys.argv[1:]
    try:
        if (
            len(words) == 4
            and words[0] == 'port'
            and words[2].isdecimal()
            and re.fullmatch('/dev/dfl-fme\\.[0-9]+', words[1])
        ):
            load_port(words[1], words[2], Path(words[3]))
        elif (
            len(words) == 4
            and words[0] == 'manager'
            and words[2] in FLAGS
            and re.fullmatch('fpga[0-9]+', words[1])
        ):
            load_manager(words[1], words[2], Path(words[3]), guard=removed_if_killed)
        else:
            raise Failed(
                'Usage: cyborg-fpga-load port /dev/dfl-fme.N PORT IMAGE, or '
                'cyborg-fpga-load manager fpgaN full|partial IMAGE'
            )
    except (Failed, OSError) as error:
        sys.exit(str(error))
