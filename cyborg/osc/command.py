# SPDX-License-Identifier: Apache-2.0
"""The base classes of the commands."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from osc_lib.command import command

Table = tuple[Sequence[str], Iterable[Sequence[Any]]]
Row = tuple[Sequence[str], Sequence[Any]]

#: heading of a column -> attribute of a resource
Columns = Mapping[str, str]


class Lister(command.Lister):  # type: ignore[misc]
    """A command that prints a table."""

    @property
    def client(self) -> Any:
        return self.app.client_manager.accelerator


class ShowOne(command.ShowOne):  # type: ignore[misc]
    """A command that prints the fields of one resource."""

    @property
    def client(self) -> Any:
        return self.app.client_manager.accelerator


def table(columns: Columns, resources: Iterable[Any]) -> Table:
    """Return resources as rows."""
    return tuple(columns), [
        tuple(getattr(each, name) for name in columns.values()) for each in resources
    ]


def row(columns: Columns, shown: Any) -> Row:
    """Return one resource as fields."""
    return tuple(columns), tuple(getattr(shown, name) for name in columns.values())
