# SPDX-License-Identifier: Apache-2.0
"""Migrations of rows while services run, after the schema has been expanded.

Services read both the old and the new form until a later release contracts the schema.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from oslo_log import log

from cyborg.db.sqlalchemy import engine

LOG = log.getLogger(__name__)
#: rows that one transaction migrates
BATCH = 50


@dataclass(frozen=True)
class OnlineMigration:
    """Changes rows of the old form to the new one."""

    name: str
    #: returns how many rows have the old form
    count: Callable[[engine.Session], int]
    #: migrates at most so many rows; returns how many
    migrate: Callable[[engine.Session, int], int]


#: in the order in which they run
MIGRATIONS: tuple[OnlineMigration, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a run of one migration."""

    name: str
    found: int
    done: int
    error: str | None = None

    @property
    def left(self) -> int:
        return self.found - self.done


def run(
    db: engine.Database, limit: int | None, migrations: Sequence[OnlineMigration] | None = None
) -> Iterator[Outcome]:
    """Runs each migration and yields its result. They migrate at most ``limit`` rows together.

    A migration that fails does not keep the others from running.
    """
    for migration in MIGRATIONS if migrations is None else migrations:
        outcome = _run(db, migration, limit)
        if limit is not None:
            limit -= outcome.done
        yield outcome


def _run(db: engine.Database, migration: OnlineMigration, limit: int | None) -> Outcome:
    found, done = 0, 0
    try:
        with db.reader() as session:
            found = migration.count(session)
        while done < found:
            size = BATCH if limit is None else min(BATCH, limit - done)
            if size <= 0:
                break
            with db.writer() as session:
                moved = migration.migrate(session, size)
            if not moved:
                break
            done += moved
    except Exception as error:
        LOG.exception('Online migration %s failed.', migration.name)
        return Outcome(migration.name, found, done, str(error).partition('\n')[0])
    return Outcome(migration.name, max(found, done), done)


def left(
    db: engine.Database, migrations: Sequence[OnlineMigration] | None = None
) -> dict[str, int]:
    """Returns the migrations that are not finished, with the number of their rows."""
    with db.reader() as session:
        counts = {
            each.name: each.count(session)
            for each in (MIGRATIONS if migrations is None else migrations)
        }
    return {name: count for name, count in counts.items() if count}
