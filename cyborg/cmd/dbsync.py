# SPDX-License-Identifier: Apache-2.0
"""cyborg-dbsync: creates and upgrades the schema of the database."""

import enum
import sys
from collections.abc import Callable
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.cmd import startup
from cyborg.db.sqlalchemy import engine, migration, online_migrations, revisions


class Exit(enum.IntEnum):
    """Exit statuses of online_data_migrations, as nova-manage has them."""

    #: nothing is left to migrate
    DONE = 0
    #: rows were migrated; run it again until it exits with 0
    AGAIN = 1
    #: rows are left, and none of them can be migrated
    FAILED = 2
    INVALID = 127


def upgrade(db: engine.Database, options: Any) -> None:
    before = revisions.version(db)
    if options.contract:
        _require_online_migrations(db)
        migration.contract(db)
    elif options.expand:
        migration.expand(db)
    elif options.revision:
        migration.upgrade(db, options.revision)
    else:
        _upgrade_in_one_step(db)
    print(f'The schema is at {revisions.version(db)}; it was at {before or "nothing"}.')
    if options.expand and (left := revisions.pending(revisions.version(db))):
        print(
            f'{len(left)} migrations are left for cyborg-dbsync upgrade --contract, when no '
            'service of the previous release runs any more.'
        )


def _upgrade_in_one_step(db: engine.Database) -> None:
    """Expand the schema, migrate all rows and contract the schema, with all services stopped."""
    migration.expand_across_releases(db)
    if revisions.obstacle(db) is None:
        _print(list(online_migrations.run(db, None)))
    _require_online_migrations(db)
    migration.upgrade(db)


def _require_online_migrations(db: engine.Database) -> None:
    if revisions.obstacle(db) is None and (left := online_migrations.left(db)):
        raise errors.ConfigError(
            why='Rows must be migrated before the schema is contracted, run cyborg-dbsync '
            f'online_data_migrations: {", ".join(f"{name}: {left[name]}" for name in left)}.'
        )


def version(db: engine.Database, options: Any) -> None:
    print(revisions.version(db) or 'The database is empty: run cyborg-dbsync upgrade.')


def revision(db: engine.Database, options: Any) -> None:
    migration.revise(db, options.message, options.autogenerate)


def stamp(db: engine.Database, options: Any) -> None:
    migration.stamp(db, options.revision or 'head')


def create_schema(db: engine.Database, options: Any) -> None:
    migration.create_schema(db)


def online_data_migrations(db: engine.Database, options: Any) -> int:
    """Run all online migrations, or a part with --max-count; returns the exit status."""
    if options.max_count is not None and options.max_count < 1:
        print('--max-count must be 1 or more.', file=sys.stderr)
        return Exit.INVALID
    revisions.require_head(db)
    outcomes = list(online_migrations.run(db, options.max_count))
    _print(outcomes)
    if not any(each.left or each.error for each in outcomes):
        print('Nothing is left to migrate.')
        return Exit.DONE
    if options.max_count is not None and any(each.done for each in outcomes):
        print('There may be more: run this again.')
        return Exit.AGAIN
    print('Rows are left that could not be migrated.', file=sys.stderr)
    return Exit.FAILED


def _print(outcomes: list[online_migrations.Outcome]) -> None:
    for each in outcomes:
        print(f'{each.name}: {each.done} of {each.found} rows migrated.')
        if each.error:
            print(f'{each.name} failed: {each.error}', file=sys.stderr)


def _commands(subparsers: Any) -> None:
    def add(function: Callable[..., int | None], help_: str) -> Any:
        parser = subparsers.add_parser(function.__name__, help=help_)
        parser.set_defaults(function=function)
        return parser

    how_far = add(
        upgrade, 'upgrade the schema and migrate rows, with all services stopped'
    ).add_mutually_exclusive_group()
    how_far.add_argument('--revision', help='default: the newest')
    how_far.add_argument(
        '--expand',
        action='store_true',
        help='only what services of the previous release can work with',
    )
    how_far.add_argument(
        '--contract',
        action='store_true',
        help='the rest, when no service of the previous release runs any more',
    )
    add(version, 'print the revision of the schema')
    parser = add(revision, 'write a new migration, for developers')
    parser.add_argument('-m', '--message', required=True)
    parser.add_argument('--autogenerate', action='store_true')
    add(stamp, 'record a revision of the schema without changing it').add_argument(
        '--revision', help='default: the newest'
    )
    add(create_schema, 'create all tables in an empty database')
    add(
        online_data_migrations,
        'migrate rows to the current form while services run; exits with 0 if nothing is left, '
        'with 1 if there may be more, with 2 if rows could not be migrated',
    ).add_argument('--max-count', type=int, help='number of rows to migrate at most; default: all')


def main() -> None:
    startup.CONF.register_cli_opt(cfg.SubCommandOpt('command', title='Commands', handler=_commands))
    with startup.exit_with_message():
        conf = startup.configure()
        db = engine.Database(conf.database.connection)
        with migration.readable_errors():
            sys.exit(conf.command.function(db, conf.command) or 0)
