# SPDX-License-Identifier: Apache-2.0
"""One import: the unit of work, the rows to import, and what was imported so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import clock, imported_rows, models
from cyborg.takeover.source import Content, Row


@dataclass
class Outcome:
    """What an import adds, one line for each row, and what an operator must know."""

    profiles: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    deployables: list[dict[str, Any]] = field(default_factory=list)
    handles: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    #: requests of earlier imports that get the project of their server
    completed: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        return {
            name: len(getattr(self, name))
            for name in ('profiles', 'devices', 'deployables', 'handles', 'requests')
        }


@dataclass(frozen=True)
class Owners:
    """The projects of servers, for requests that have none in the other database."""

    #: by the uuid of the server
    projects: Mapping[str, str] = field(default_factory=dict)
    #: why the projects of other servers are not known, and what to do
    why: str = ''


class ImportRun:
    """Knows which rows are imported already, and collects the outcome."""

    def __init__(self, unit: UnitOfWork, content: Content, owners: Owners) -> None:
        self.unit, self.session, self.content = unit, unit.session, content
        self.owners = owners
        self.outcome = Outcome()
        self.known = imported_rows.known(unit.session)
        #: kind -> what we have, by uuid
        self._ours: dict[str, dict[str, Any]] = {}

    def present(self, kind: str, model: type[Any], row: Row) -> tuple[bool, Any]:
        """Returns whether a row was imported before, or exists already, and our row. Our row is
        None if it was deleted since."""
        if kind not in self._ours:
            rows = self.session.scalars(sa.select(model))
            self._ours[kind] = {mine.uuid: mine for mine in rows}
        ours, known = self._ours[kind], self.known.get((kind, row['uuid']))
        mine = ours.get(row['uuid'])
        if mine is None and known is not None and known.merged_into is not None:
            mine = ours.get(known.merged_into)
        return known is not None or mine is not None, mine

    def record(self, kind: str, uuid: str, **facts: str | None) -> None:
        """Record that a row is imported, so that the next import skips it."""
        if (kind, uuid) not in self.known:
            row = models.ImportedRow(kind=kind, uuid=uuid, **facts)
            self.known[kind, uuid] = row
            self.session.add(row)

    def note(self, sentence: str) -> None:
        """Add a sentence to what an operator must know."""
        self.outcome.notes.append(sentence)


def stamps(row: Row) -> dict[str, Any]:
    """Returns when a row was created and updated there."""
    return {
        'created_at': row['created_at'] or clock.now(),
        'updated_at': row['updated_at'],
    }
