# SPDX-License-Identifier: Apache-2.0
"""Seeing what a driver looks at: a host whose paths tell when they are used."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

from cyborg.accelerator.sysfs import Sysfs

#: Called with a path, and whether the path itself was used: else only its name was listed.
OnLook = Callable[[Path, bool], None]


def watch(sysfs: Sysfs, on_look: OnLook) -> Sysfs:
    """The same host; every look at a path of it is told first, by its full name."""

    class Watched(type(Path())):  # type: ignore[misc]
        def __fspath__(self) -> str:
            # what the operating system is to do with a path, it does with this text
            text = str(self)
            on_look(Path(text), True)
            return text

        def glob(self, pattern: str) -> Iterator[Path]:
            for found in super().glob(pattern):
                on_look(Path(str(found)), False)
                yield found

        def iterdir(self) -> Iterator[Path]:
            for found in super().iterdir():
                on_look(Path(str(found)), False)
                yield found

    seen = copy.copy(sysfs)
    seen.path = Watched(sysfs.path.resolve())
    seen.host = seen
    return seen
