# SPDX-License-Identifier: Apache-2.0
"""Files and links of a recorded host that no simulated driver creates."""

import os
import re
from collections.abc import Mapping

from cyborg.sim.tree import Tree

#: The prefix of all names that belong to a function, wherever its directory is.
FUNCTION = re.compile(r'bus/pci/devices/([^/]+)')


def owner(name: str) -> str | None:
    """Return the address of the function that a name belongs to, or None."""
    found = FUNCTION.match(name)
    return found[1] if found else None


class Overlay:
    """Adds files and links to a tree. A file whose text is None is removed; a name that ends with a
    slash is a directory. A link is created together with its target."""

    def __init__(
        self,
        tree: Tree,
        files: Mapping[str, str | None] | None = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        self._tree = tree
        self._files = files or {}
        self._links = links or {}

    def show(self, address: str | None) -> None:
        """Create the files and links that belong to a function, or to none."""
        for name, text in self._files.items():
            if owner(name) == address:
                self._add_file(name, text)
        for name, target in self._links.items():
            if (owner(name) or owner(target)) == address:
                self._add_link(name, target)

    def hide(self, address: str) -> None:
        """Remove the links that lead to a function."""
        for name, target in self._links.items():
            if owner(name) is None and owner(target) == address:
                self._tree.remove(self._place(name))

    def _add_file(self, name: str, text: str | None) -> None:
        place, is_directory = self._place(name), name.endswith('/')
        path = self._tree.path(place)
        if (
            text is None
            or path.is_symlink()
            or (path.exists() and path.is_dir() is not is_directory)
        ):
            self._tree.remove(place)
        if is_directory:
            self._tree.directory(place)
        elif text is not None:
            self._tree.set_text(place, text)

    def _add_link(self, name: str, target: str) -> None:
        place, there = self._place(name), self._tree.real(target)
        if not self._tree.path(there).exists():
            self._tree.directory(there)
        self._tree.remove(place)
        self._tree.link(place, there)

    def _place(self, name: str) -> str:
        """Resolve the links in the parent directories of a name, but not the name itself."""
        above, _, last = name.rstrip('/').rpartition('/')
        return os.path.normpath(f'{self._tree.real(above)}/{last}')
