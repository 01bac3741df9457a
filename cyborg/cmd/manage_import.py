# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage import: takes over from the upstream service."""

import argparse
import json
from collections.abc import Collection, Sequence
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.clients.nova import Nova
from cyborg.cmd import manage_profiles
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import engine, revisions
from cyborg.db.sqlalchemy.history import Cause
from cyborg.takeover import arqs, profiles, source
from cyborg.takeover.import_run import Outcome, Owners
from cyborg.takeover.importer import import_content

DESCRIPTION = """\
Imports device profiles, devices with their resource providers, attach handles and requests from
the database of the upstream service, of release 17.0.0 or of an older one with the same columns.
Without --yes it prints what it would do, and changes nothing. A second import adds only what is
new. The other database is only read. Stop the upstream services before you use --yes."""
EXAMPLE = """\
example:
  cyborg-manage import --from mysql+pymysql://cyborg:secret@db.example/cyborg_upstream
  cyborg-manage import --from mysql+pymysql://cyborg:secret@db.example/cyborg_upstream --yes"""

#: what is printed of each kind: the title, and a heading for each of its facts
TABLES = {
    'profiles': ('Device profiles', ('uuid', 'name', 'imported_as', 'enabled')),
    'devices': ('Devices', ('uuid', 'host', 'type', 'vendor', 'address', 'status')),
    'deployables': ('Deployables', ('uuid', 'name', 'provider', 'resource_class')),
    'requests': ('Requests', ('uuid', 'state', 'imported_as', 'server', 'host', 'handle')),
    'completed': ('Projects of requests that were imported before', ('uuid', 'server', 'project')),
}


class _DryRun(Exception):
    """Rolls the transaction back."""


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        'import',
        help='take over what the upstream service manages, from its database',
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        '--from',
        dest='source',
        metavar='URL',
        required=True,
        help='the database of the upstream service, as an URL of SQLAlchemy',
    )
    parser.add_argument(
        '--yes', '--apply', action='store_true', help='import; without this it is a dry run'
    )
    parser.add_argument(
        '--format', choices=('table', 'json'), default='table', help='how to print the result'
    )
    parser.add_argument(
        '--map',
        dest='maps',
        metavar='OLD=NEW',
        action='append',
        default=[],
        help='rename what device profiles ask for. ' + manage_profiles.SYNTAX,
    )
    parser.set_defaults(function=import_rows)


def import_rows(conf: cfg.ConfigOpts, options: Any) -> int:
    """Import everything in one transaction, or print what would be imported."""
    names = manage_profiles.parse(options.maps)

    def rename(groups: Sequence[profiles.Group]) -> list[profiles.Group]:
        return [manage_profiles.rename(group, names) for group in groups]

    connection = str(conf.database.connection or '')
    db = revisions.open_current(connection)
    content = source.read(options.source, connection)
    owners = _owners(conf, arqs.servers_without_project(content))

    @engine.retried
    def imported() -> Outcome:
        outcome = Outcome()
        try:
            with transact(db, Cause('operator')) as unit:
                outcome = import_content(unit, content, rename, conf.api.extra_accel_keys, owners)
                if not options.yes:
                    raise _DryRun
        except _DryRun:
            pass
        return outcome

    printed = _as_json if options.format == 'json' else _as_tables
    print(printed(content, imported(), options.yes))
    return 0


def _owners(conf: cfg.ConfigOpts, servers: Collection[str]) -> Owners:
    """Ask Nova for the projects of these servers."""
    if not servers:
        return Owners()
    from cyborg.clients import keystone  # slow to import, and most imports do not need it

    try:
        projects = Nova(keystone.connect(conf, 'nova')).projects_of(servers)
    except (errors.ConfigError, errors.Unavailable) as error:
        why = error.faultstring.rstrip('.')
        return Owners(why=f'{why}. Correct that, and run the import again.')
    return Owners(
        projects,
        'Nova does not know the server: if it was deleted, cyborg-manage audit --fix deletes the '
        'request; otherwise run the import again when Nova lists the server.',
    )


def _as_json(content: source.Content, outcome: Outcome, is_applied: bool) -> str:
    return json.dumps(
        {
            'schema': content.revision,
            'lacking': content.lacking,
            'applied': is_applied,
            'counts': outcome.counts,
            'profiles': outcome.profiles,
            'devices': outcome.devices,
            'deployables': outcome.deployables,
            'handles': outcome.handles,
            'requests': outcome.requests,
            'completed': outcome.completed,
            'notes': outcome.notes,
        },
        indent=2,
    )


def _as_tables(content: source.Content, outcome: Outcome, is_applied: bool) -> str:
    blocks = []
    if content.revision != source.NEWEST:
        lacking = f', without {", ".join(content.lacking)}' if content.lacking else ''
        blocks.append(
            f'The schema is {content.revision}, not that of release 17.0.0 ({source.NEWEST})'
            f'{lacking}.'
        )
    for kind, (title, columns) in TABLES.items():
        if rows := getattr(outcome, kind):
            blocks.append(f'{title}\n{_table(columns, rows)}')
    if outcome.notes:
        blocks.append('\n'.join(('Notes', *(f'* {note}' for note in outcome.notes))))
    blocks.append(_summary(outcome, is_applied))
    return '\n\n'.join(blocks)


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    lines = [[name.replace('_', ' ') for name in columns]]
    lines += [['-' if row[name] is None else str(row[name]) for name in columns] for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return '\n'.join(
        '  '
        + '  '.join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _summary(outcome: Outcome, is_applied: bool) -> str:
    counts = outcome.counts
    if not any(counts.values()) and not outcome.completed:
        return 'There is nothing to import.'
    bound = sum(1 for each in outcome.requests if each['imported_as'] == 'Bound')
    what = (
        f'{counts["profiles"]} device profiles, {counts["devices"]} devices, '
        f'{counts["deployables"]} deployables, {counts["handles"]} attach handles and '
        f'{counts["requests"]} requests, of which {bound} are bound'
    )
    if outcome.completed:
        what += f'; and the projects of {len(outcome.completed)} requests of earlier imports'
    if is_applied:
        return f'Imported: {what}.'
    return f'To import: {what}. Nothing is changed yet: --yes imports them.'
