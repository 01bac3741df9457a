# SPDX-License-Identifier: Apache-2.0
"""Observes which files a driver accesses."""

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cyborg.accelerator.sysfs import Sysfs

#: Called with a path, and whether it was used; otherwise its name was only listed.
OnAccess = Callable[[Path, bool], None]


def watch(sysfs: Sysfs, on_access: OnAccess) -> Sysfs:
    """Return the same host; ``on_access`` is called before each access to a path."""

    class Watched(type(Path())):  # type: ignore[misc]
        def __fspath__(self) -> str:
            # every system call with this path gets its name from here
            text = str(self)
            on_access(Path(text), True)
            return text

        def glob(self, pattern: str) -> Iterator[Path]:
            for found in super().glob(pattern):
                on_access(Path(str(found)), False)
                yield found

        def iterdir(self) -> Iterator[Path]:
            for found in super().iterdir():
                on_access(Path(str(found)), False)
                yield found

    def on_listed(paths: Sequence[Path]) -> None:
        for path in paths:
            on_access(Path(str(path)), False)

    seen = copy.copy(sysfs)
    seen.on_listed = on_listed  # type: ignore[method-assign]
    seen.path = Watched(sysfs.path.resolve())
    seen.host = seen
    return seen
