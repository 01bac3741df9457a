# SPDX-License-Identifier: Apache-2.0
"""Serves the tree of a simulated host as a FUSE file system."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import mfusepy

from cyborg.sim.tree import Tree, kernel_error

PAGE = 4096  #: the size that sysfs shows for any attribute
#: The permission that each access mode of open(2) needs.
BITS = {
    os.O_RDONLY: stat.S_IROTH,
    os.O_WRONLY: stat.S_IWOTH,
    os.O_RDWR: stat.S_IROTH | stat.S_IWOTH,
}


class SysfsOperations(mfusepy.Operations):
    """Handles the requests of the kernel."""

    use_ns = True

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.lstat(self._place(path))
        facts = {
            name: getattr(status, name)
            for name in ('st_mode', 'st_nlink', 'st_uid', 'st_gid', 'st_size')
        }
        facts |= {f'st_{each}time': getattr(status, f'st_{each}time_ns') for each in 'acm'}
        if stat.S_ISREG(status.st_mode) and not path.endswith('/config'):
            facts['st_size'] = PAGE
        return facts

    def readdir(self, path: str, fh: int) -> list[str]:
        names = os.listdir(self._place(path))
        return ['.', '..', *(name for name in names if path != '/' or not name.startswith('.'))]

    def readlink(self, path: str) -> str:
        return os.readlink(self._place(path))

    def open(self, path: str, flags: int) -> int:
        """Check the mode: root needs the permission of any class, other users that of others.

        The kernel could check it (default_permissions), but would then request the attributes
        of every directory on the path."""
        mode, needed = os.stat(self._place(path)).st_mode, BITS[flags & os.O_ACCMODE]
        user, _, _ = mfusepy.fuse_get_context()
        if needed & ~(mode if user else mode | mode >> 3 | mode >> 6):
            raise kernel_error(errno.EACCES)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return self._tree.read(path.strip('/'))[offset : offset + size]

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._tree.write(Path(self._place(path)), data.decode(errors='replace'))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        """Do nothing: a shell truncates before it writes, and sysfs ignores that."""
        os.lstat(self._place(path))
        return 0

    def _place(self, path: str) -> str:
        return f'{self._tree.root}{path}'


def mount(tree: Tree, directory: str) -> None:
    """Serve the tree there until it is unmounted.

    The kernel caches names for a second, so that it does not look up each part of a path every
    time. It caches neither attributes nor missing names, so that every change is seen at once.
    """
    mfusepy.FUSE(
        SysfsOperations(tree),
        directory,
        foreground=True,
        fsname='cyborg-sim',
        allow_other=True,
        direct_io=True,
        entry_timeout=1,
        attr_timeout=0,
        negative_timeout=0,
    )
