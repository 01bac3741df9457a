# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage handle: handles that could not be cleaned after a request."""

from typing import Any

from oslo_config import cfg

from cyborg.conductor.engine import tasks
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import audit, engine, migration
from cyborg.db.sqlalchemy.history import Cause


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser('handle', help='handles that could not be cleaned')
    commands = parser.add_subparsers(dest='action', required=True)
    listing = commands.add_parser('list', help='list the handles that are quarantined')
    listing.set_defaults(function=list_handles)
    clean = commands.add_parser('clean', help='have the host try once more to clean a handle')
    clean.add_argument('uuid')
    clean.set_defaults(function=clean_handle)
    release = commands.add_parser('release', help='give a handle out again, as it is')
    release.add_argument('uuid')
    release.set_defaults(function=release_handle)


def _database(conf: cfg.ConfigOpts) -> engine.Database:
    db = engine.Database(conf.database.connection)
    migration.require_head(db)
    return db


def list_handles(conf: cfg.ConfigOpts, options: Any) -> int:
    """One line for each, with its host and the reason."""
    with _database(conf).reader() as session:
        found = audit.quarantined(session)
    for handle, hostname, error in found:
        print(f'{handle} on {hostname}: {error}')
    if not found:
        print('No handle is quarantined')
    return 0


def clean_handle(conf: cfg.ConfigOpts, options: Any) -> int:
    """Its agent hears of it with its next heartbeat."""
    with transact(_database(conf), Cause('operator')) as unit:
        tasks.clean_again(unit, options.uuid)
    print('Its agent tries again with its next heartbeat')
    return 0


def release_handle(conf: cfg.ConfigOpts, options: Any) -> int:
    """It can be taken at once; Placement offers it after the agent's next heartbeat."""
    with transact(_database(conf), Cause('operator')) as unit:
        tasks.release_from_quarantine(unit, options.uuid)
    print('It is given out again, as it is')
    return 0
