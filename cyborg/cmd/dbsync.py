# SPDX-License-Identifier: Apache-2.0
"""cyborg-dbsync: the schema of the database."""

from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from cyborg.cmd import startup
from cyborg.db.sqlalchemy import engine, migration

#: Each moves at most so many rows to a newer form, and answers how many it found and moved.
ONLINE_MIGRATIONS: tuple[Callable[[engine.Database, int], tuple[int, int]], ...] = ()


def upgrade(db: engine.Database, options: Any) -> None:
    before = migration.version(db)
    migration.upgrade(db, options.revision or 'head')
    print(f'The schema is at {migration.version(db)}; it was at {before or "nothing"}.')


def version(db: engine.Database, options: Any) -> None:
    print(migration.version(db) or 'The database is empty: run cyborg-dbsync upgrade.')


def revision(db: engine.Database, options: Any) -> None:
    migration.revise(db, options.message, options.autogenerate)


def stamp(db: engine.Database, options: Any) -> None:
    migration.stamp(db, options.revision or 'head')


def create_schema(db: engine.Database, options: Any) -> None:
    migration.create_schema(db)


def online_data_migrations(db: engine.Database, options: Any) -> None:
    """Run all of them until nothing is left, or as many rows as asked for."""
    left = options.max_count
    for migrate in ONLINE_MIGRATIONS:
        found, moved = migrate(db, left)
        print(f'{migrate.__name__}: {moved} of {found} rows moved.')
        left -= moved
    print('Nothing is left to migrate.' if left else 'There may be more: run this again.')


def _commands(subparsers: Any) -> None:
    def add(function: Callable[..., None], help_: str) -> Any:
        parser = subparsers.add_parser(function.__name__, help=help_)
        parser.set_defaults(function=function)
        return parser
    add(upgrade, 'bring the schema to a revision').add_argument(
        '--revision', help='default: the newest')
    add(version, 'print the revision of the schema')
    parser = add(revision, 'write a new migration, for developers')
    parser.add_argument('-m', '--message', required=True)
    parser.add_argument('--autogenerate', action='store_true')
    add(stamp, 'declare the revision of the schema without changing it').add_argument(
        '--revision', help='default: the newest')
    add(create_schema, 'make all tables of an empty database')
    add(online_data_migrations, 'move rows to newer forms').add_argument(
        '--max-count', type=int, default=1_000_000)


def main() -> None:
    startup.CONF.register_cli_opt(cfg.SubCommandOpt(
        'command', title='Commands', handler=_commands))
    with startup.one_sentence():
        conf = startup.configure()
        db = engine.Database(conf.database.connection)
        with migration.readable_errors():
            conf.command.function(db, conf.command)
