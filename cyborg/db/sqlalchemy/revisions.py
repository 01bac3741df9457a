# SPDX-License-Identifier: Apache-2.0
"""The revisions of the schema: which ones this release knows, and which one a database has.

Services check the schema at their start with this module. It reads the migrations as text, and does
not import alembic, which takes 10 MB.
"""

import ast
import enum
import functools
import pathlib
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cyborg import errors
from cyborg.db.sqlalchemy import engine

SCRIPTS = pathlib.Path(__file__).parent / 'alembic'
#: where alembic keeps the revision of the schema
VERSION_TABLE = 'schema_version'
#: where earlier releases expect it: there is the oldest revision whose release can use the schema
FLOOR_TABLE = 'alembic_version'


class Phase(enum.StrEnum):
    """When a migration runs, as its script says in ``phase``."""

    #: with services of the previous release running, which can use the schema afterwards, too
    EXPAND = 'expand'
    #: when no service of the previous release is left
    CONTRACT = 'contract'


@dataclass(frozen=True)
class Revision:
    """A migration as its script describes it."""

    revision: str
    down_revision: str | None
    #: None: the script is older than phases
    phase: Phase | None


@functools.cache
def known() -> tuple[Revision, ...]:
    """Returns the migrations of this release, first to last."""
    by_parent = {
        each.down_revision: each for each in map(_read_script, (SCRIPTS / 'versions').glob('*.py'))
    }
    ordered: list[Revision] = []
    parent: str | None = None
    while (each := by_parent.get(parent)) is not None:
        ordered.append(each)
        parent = each.revision
    return tuple(ordered)


def _read_script(path: pathlib.Path) -> Revision:
    values: dict[str, Any] = {}
    for statement in ast.parse(path.read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                values[name] = value
    phase = values.get('phase')
    return Revision(values['revision'], values['down_revision'], phase and Phase(phase))


def phase_of(migration: Revision) -> Phase:
    """Returns the phase of a migration. Those that say nothing are older than phases."""
    return migration.phase or Phase.CONTRACT


def head() -> str:
    """Returns the newest revision that this code knows."""
    return known()[-1].revision


def pending(present: str | None) -> list[Revision]:
    """Returns the migrations that a schema of this revision lacks; none if it is newer."""
    revisions = [None, *(each.revision for each in known())]
    return list(known()[revisions.index(present) :]) if present in revisions else []


def version(database: engine.Database) -> str | None:
    """Returns the revision of the database; None if it is empty."""
    with database.engine.connect() as connection:
        return read(connection, VERSION_TABLE) or read(connection, FLOOR_TABLE)


def floor(database: engine.Database) -> str | None:
    """Returns the oldest revision whose release can use the database."""
    with database.engine.connect() as connection:
        return read(connection, FLOOR_TABLE)


def read(connection: sa.Connection, table: str) -> str | None:
    """Returns the revision in a table of versions; None if there is none."""
    if not sa.inspect(connection).has_table(table):
        return None
    number = sa.column('version_num', sa.String())
    return connection.scalars(sa.select(number).select_from(sa.table(table))).one_or_none()


def require_own(database: engine.Database) -> None:
    """Raises ConfigError if another service made the tables, for instance upstream Cyborg."""
    if why := _other_owner(database):
        raise errors.ConfigError(why=why)


def _other_owner(database: engine.Database) -> str | None:
    """Returns why a database is not one of this service, or None if it is one, or is empty.

    Upstream Cyborg has its revision in FLOOR_TABLE. Releases of this service that are later than
    this one have theirs in VERSION_TABLE.
    """
    with database.engine.connect() as connection:
        present = read(connection, FLOOR_TABLE)
        is_ours = read(connection, VERSION_TABLE) is not None
    if present is None or is_ours or present in [each.revision for each in known()]:
        return None
    return (
        'The database belongs to another service, such as upstream Cyborg: its schema is at '
        f'{present}. Set [database] connection to an empty database, run cyborg-dbsync upgrade, '
        'and import the other one with cyborg-manage import.'
    )


def obstacle(database: engine.Database) -> str | None:
    """Returns why this code cannot use the schema, or None if it can.

    It needs all migrations that expand. It can use the schema of a later release that has only
    added to it.
    """
    if why := _other_owner(database):
        return why
    present, oldest = version(database), floor(database)
    revisions = [each.revision for each in known()]
    if present is not None and present not in revisions:
        if oldest in revisions:
            return None
        return (
            f'The schema of the database is at {present}, of a later release, which has removed '
            f'what this release needs; this release has {head()}.'
        )
    for each in pending(present):
        if phase_of(each) is Phase.EXPAND or present is None:
            return (
                f'The schema of the database is at {present or "nothing"}, this release needs '
                f'{head()}: run cyborg-dbsync upgrade.'
            )
    return None


def require_head(database: engine.Database) -> None:
    """Raises if this code cannot use the schema."""
    if why := obstacle(database):
        raise errors.ConfigError(why=why)


def open_current(url: str) -> engine.Database:
    """Open a database; raises ConfigError if its schema is not that of this release."""
    db = engine.Database(url)
    require_head(db)
    return db
