# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage handle: attach handles in quarantine, which could not be cleaned."""

from typing import Any

from oslo_config import cfg

from cyborg.cmd import startup
from cyborg.conductor.engine import quarantine
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import audit, engine, revisions
from cyborg.db.sqlalchemy.history import Cause


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser('handle', help='handles that could not be cleaned')
    commands = parser.add_subparsers(dest='action', required=True)
    listing = commands.add_parser('list', help='list the handles that are quarantined')
    listing.set_defaults(function=list_handles)
    clean = commands.add_parser('clean', help='make the host clean a handle again')
    clean.add_argument('uuid')
    clean.set_defaults(function=clean_handle)
    release = commands.add_parser('release', help='end the quarantine without cleaning the handle')
    release.add_argument('uuid')
    release.add_argument(
        '--reason', required=True, type=startup.reason, help='recorded with the hand-back'
    )
    release.set_defaults(function=release_handle)


def list_handles(conf: cfg.ConfigOpts, options: Any) -> int:
    """Print a line for each quarantined handle, with its host and the reason."""
    with revisions.open_current(conf.database.connection).reader() as session:
        found = audit.quarantined(session)
    for handle, hostname, error in found:
        print(f'{handle} on {hostname}: {error}')
    if not found:
        print('No handle is quarantined')
    return 0


@engine.retried
def clean_handle(conf: cfg.ConfigOpts, options: Any) -> int:
    """Schedule the cleaning; the agent fetches the task after its next heartbeat."""
    with transact(revisions.open_current(conf.database.connection), Cause('operator')) as unit:
        quarantine.clean_again(unit, options.uuid)
    print('Its agent cleans it after its next heartbeat')
    return 0


@engine.retried
def release_handle(conf: cfg.ConfigOpts, options: Any) -> int:
    """End the quarantine of a handle without cleaning it, and print whether it can be bound.

    Placement offers it after the next heartbeat of the agent.
    """
    with transact(revisions.open_current(conf.database.connection), Cause('operator')) as unit:
        quarantine.release(unit, options.uuid, options.reason)
        why_not = quarantine.why_not_available(unit, options.uuid)
    if why_not:
        print(f'It is not available yet, and was not cleaned: {why_not}')
    else:
        print('It is available again, without having been cleaned')
    return 0
