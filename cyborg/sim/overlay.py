# SPDX-License-Identifier: Apache-2.0
"""What a recorded host shows and no simulated driver makes: files and links, as they were."""

import os
import re
from collections.abc import Mapping

from cyborg.sim.tree import Tree

#: Names begin with it where they belong to a function, wherever that hangs.
FUNCTION = re.compile(r'bus/pci/devices/([^/]+)')


def owner(name: str) -> str | None:
    """The address of the function that a name belongs to."""
    found = FUNCTION.match(name)
    return found[1] if found else None


class Overlay:
    """A file without text is one that must not be there, one whose name ends with a slash a
    directory. Links are made together with what they lead to."""

    def __init__(self, tree: Tree, files: Mapping[str, str | None] | None = None,
                 links: Mapping[str, str] | None = None) -> None:
        self._tree = tree
        self._files = files or {}
        self._links = links or {}

    def show(self, address: str | None) -> None:
        """What belongs to a function, or to none."""
        for name, text in self._files.items():
            if owner(name) == address:
                self._lay(name, text)
        for name, target in self._links.items():
            if (owner(name) or owner(target)) == address:
                self._link(name, target)

    def hide(self, address: str) -> None:
        """What led to a function that goes."""
        for name, target in self._links.items():
            if owner(name) is None and owner(target) == address:
                self._tree.remove(self._place(name))

    def _lay(self, name: str, text: str | None) -> None:
        place, is_directory = self._place(name), name.endswith('/')
        path = self._tree.path(place)
        if text is None or path.is_symlink() or (path.exists()
                                                 and path.is_dir() is not is_directory):
            self._tree.remove(place)
        if is_directory:
            self._tree.directory(place)
        elif text is not None:
            self._tree.retell(place, text)

    def _link(self, name: str, target: str) -> None:
        place, there = self._place(name), self._tree.real(target)
        if not self._tree.path(there).exists():
            self._tree.directory(there)
        self._tree.remove(place)
        self._tree.link(place, there)

    def _place(self, name: str) -> str:
        """The real name of a thing that may itself be a link."""
        above, _, last = name.rstrip('/').rpartition('/')
        return os.path.normpath(f'{self._tree.real(above)}/{last}')
