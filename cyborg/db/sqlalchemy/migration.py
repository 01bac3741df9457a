# SPDX-License-Identifier: Apache-2.0
"""The schema's history: what cyborg-dbsync does, and what a start-up checks."""

import contextlib
import pathlib
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import command, config, migration, script, util
from oslo_db import exception as db_exc

from cyborg import errors
from cyborg.db.sqlalchemy import engine, models

SCRIPTS = pathlib.Path(__file__).parent / 'alembic'


def _config(connection: sa.Connection | None = None) -> config.Config:
    made = config.Config()
    made.set_main_option('script_location', str(SCRIPTS).replace('%', '%%'))
    made.attributes['connection'] = connection
    return made


def head() -> str:
    """The newest revision that this code knows."""
    return str(script.ScriptDirectory.from_config(_config()).get_current_head())


def version(database: engine.Database) -> str | None:
    """The revision the database is at; None if it is empty."""
    with database.engine.connect() as connection:
        return migration.MigrationContext.configure(connection).get_current_revision()


def upgrade(database: engine.Database, revision: str = 'head') -> None:
    """Bring the schema to a revision; nothing happens if it is there."""
    with database.engine.begin() as connection:
        command.upgrade(_config(connection), revision)


def stamp(database: engine.Database, revision: str) -> None:
    """Say that the schema is at a revision, without changing it."""
    with database.engine.begin() as connection:
        command.stamp(_config(connection), revision)


def create_schema(database: engine.Database) -> None:
    """Make all tables of an empty database from the models, and stamp it."""
    models.Base.metadata.create_all(database.engine)
    stamp(database, 'head')


def revise(database: engine.Database, message: str, autogenerate: bool) -> None:
    """Write a new migration script, for developers."""
    with database.engine.begin() as connection:
        command.revision(_config(connection), message=message, autogenerate=autogenerate)


def require_head(database: engine.Database) -> None:
    """Refuse to work on a schema other than the one this code was written for."""
    present = version(database)
    if present != head():
        raise errors.ConfigError(
            why=f'The schema of the database is at {present or "nothing"}, this release needs '
                f'{head()}: run cyborg-dbsync upgrade.')


@contextlib.contextmanager
def readable_errors() -> Iterator[None]:
    """Turn what alembic and the database say into one sentence."""
    try:
        yield
    except (util.CommandError, sa.exc.SQLAlchemyError, db_exc.DBError) as error:
        raise errors.ConfigError(why=str(error).splitlines()[0]) from error
