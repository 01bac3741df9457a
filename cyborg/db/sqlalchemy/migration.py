# SPDX-License-Identifier: Apache-2.0
"""Schema migrations by alembic, for the commands that change the schema."""

import contextlib
import functools
import itertools
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import command, config, migration, script, util
from oslo_db import exception as db_exc

from cyborg import errors
from cyborg.db.sqlalchemy import engine, models, repeatable, revisions
from cyborg.db.sqlalchemy.revisions import FLOOR_TABLE, VERSION_TABLE, Phase


def _config(connection: sa.Connection | None = None) -> config.Config:
    made = config.Config()
    made.set_main_option('script_location', str(revisions.SCRIPTS).replace('%', '%%'))
    made.attributes['connection'] = connection
    return made


@functools.cache
def _directory() -> script.ScriptDirectory:
    return script.ScriptDirectory.from_config(_config())


def _table(connection: sa.Connection, name: str) -> migration.MigrationContext:
    return migration.MigrationContext.configure(connection, opts={'version_table': name})


def _create_tables(connection: sa.Connection) -> None:
    """Create the tables of versions with our charset: alembic would use that of the database."""
    for name in (VERSION_TABLE, FLOOR_TABLE):
        sa.Table(
            name,
            sa.MetaData(),
            sa.Column('version_num', sa.String(32), nullable=False),
            sa.PrimaryKeyConstraint('version_num', name=f'{name}_pkc'),
            mysql_engine='InnoDB',
            mysql_charset='utf8mb4',
            mysql_collate='utf8mb4_bin',
        ).create(connection, checkfirst=True)


@contextlib.contextmanager
def _changing(database: engine.Database) -> Iterator[sa.Connection]:
    """Update both tables of versions after the block, which changes VERSION_TABLE.

    A database of a release that had only one table has its revision there.
    """
    revisions.require_own(database)
    with database.engine.begin() as connection:
        _create_tables(connection)
        present = revisions.read(connection, FLOOR_TABLE)
        if present is not None and revisions.read(connection, VERSION_TABLE) is None:
            _table(connection, VERSION_TABLE).stamp(_directory(), present)
        yield connection
        present = revisions.read(connection, VERSION_TABLE)
        if present is not None:
            _table(connection, FLOOR_TABLE).stamp(_directory(), _floor_of(present))


def _floor_of(revision: str) -> str:
    """Returns the oldest revision whose release can use the schema of this one: the last migration
    up to it that is not additive."""
    known = revisions.known()
    past = known[: len(known) - len(revisions.pending(revision))]
    return next(
        each.revision for each in reversed(past) if revisions.phase_of(each) is Phase.CONTRACT
    )


def upgrade(database: engine.Database, revision: str = 'head') -> None:
    """Upgrade the schema to a revision; a no-op if it has that revision.

    It can be repeated if it was interrupted. Where DDL is not transactional each migration is
    committed by itself, with its revision, and is run again if it was not finished.
    """
    steps = _steps(database, revision) if _commits_each_statement(database) else []
    for each in steps:
        _upgrade_by_one(database, each)
    if not steps:
        with _changing(database) as connection:
            command.upgrade(_config(connection), revision)


def _commits_each_statement(database: engine.Database) -> bool:
    return database.engine.dialect.name in repeatable.DIALECTS


def _steps(database: engine.Database, revision: str) -> list[str]:
    """Returns the revisions that lead to this one; empty if there are none, or it is refused."""
    present = revisions.version(database)
    try:
        found = list(_directory().iterate_revisions(revision, present, implicit_base=True))
    except script.revision.RevisionError:
        return []
    return [each.revision for each in reversed(found)]


def _upgrade_by_one(database: engine.Database, revision: str) -> None:
    with _changing(database) as connection:
        if revisions.read(connection, VERSION_TABLE) is not None:
            # The first change of the schema commits this, too: if the migration contracts and is
            # interrupted, services of earlier releases must not start.
            _table(connection, FLOOR_TABLE).stamp(_directory(), _floor_of(revision))
        command.upgrade(_config(connection), revision)


def _expands(migration: revisions.Revision) -> bool:
    return revisions.phase_of(migration) is Phase.EXPAND


def _require_tables(database: engine.Database) -> None:
    revisions.require_own(database)
    if revisions.version(database) is None:
        raise errors.ConfigError(why='The database is empty: run cyborg-dbsync upgrade.')


def expand(database: engine.Database) -> None:
    """Run the migrations that services of the previous release can work with.

    Raises if migrations of an earlier release are not finished.
    """
    _require_tables(database)
    left = revisions.pending(revisions.version(database))
    additive = list(itertools.takewhile(_expands, left))
    if any(map(_expands, left[len(additive) :])):
        raise errors.ConfigError(
            why=f'Migration {left[len(additive)].revision} contracts the schema, and others follow '
            'that expand it: stop all services of the earlier release and run cyborg-dbsync '
            'upgrade.'
        )
    if additive:
        upgrade(database, additive[-1].revision)


def expand_across_releases(database: engine.Database) -> None:
    """Run all migrations up to the last one that expands.

    No service may run: those of earlier releases that contract are among them.
    """
    expanding = [each for each in revisions.pending(revisions.version(database)) if _expands(each)]
    if expanding:
        upgrade(database, expanding[-1].revision)


def contract(database: engine.Database) -> None:
    """Run the migrations that services of the previous release cannot work with.

    Raises if the schema is not expanded yet.
    """
    _require_tables(database)
    for each in revisions.pending(revisions.version(database)):
        if _expands(each):
            raise errors.ConfigError(
                why=f'Migration {each.revision} expands the schema: run cyborg-dbsync upgrade '
                '--expand first.'
            )
    upgrade(database)


def stamp(database: engine.Database, revision: str) -> None:
    """Mark the schema as being at a revision without changing it."""
    with _changing(database) as connection:
        command.stamp(_config(connection), revision)


def create_schema(database: engine.Database) -> None:
    """Create all tables of an empty database from the models, and stamp it. A no-op if it has them.

    Raises if it has another schema, which would be stamped without being upgraded.
    """
    revisions.require_own(database)
    present = revisions.version(database)
    if present not in (None, revisions.head()):
        raise errors.ConfigError(
            why=f'The database is not empty, its schema is at {present}: run cyborg-dbsync upgrade.'
        )
    if present is None and _commits_each_statement(database):
        _complete_tables(database)
    models.Base.metadata.create_all(database.engine)
    stamp(database, 'head')


def _complete_tables(database: engine.Database) -> None:
    """Create the indexes of tables whose creation was interrupted: create_all skips such tables.

    Raises if a table is of another schema.
    """
    with database.engine.begin() as connection:
        inspector = sa.inspect(connection)
        present = inspector.get_table_names()
        for table in models.Base.metadata.sorted_tables:
            if table.name in present:
                repeatable.require_columns(inspector, table)
                for index in table.indexes:
                    index.create(connection, checkfirst=True)


def revise(database: engine.Database, message: str, autogenerate: bool) -> None:
    """Write a new migration script, for developers."""
    with database.engine.begin() as connection:
        command.revision(_config(connection), message=message, autogenerate=autogenerate)


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Turn errors of alembic and the database into one sentence."""
    try:
        yield
    except (util.CommandError, sa.exc.SQLAlchemyError, db_exc.DBError) as error:
        raise errors.ConfigError(why=str(error).splitlines()[0]) from error
