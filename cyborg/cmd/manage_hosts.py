# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage host: forgets hosts that are gone, and deletes leftover providers."""

import datetime
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.clients.placement import Obstacle, Placement
from cyborg.conductor import forget
from cyborg.db.sqlalchemy import clock, deployables, imported_rows, revisions

#: nova-compute caches its provider tree
REMEMBERED = (
    'Restart nova-compute afterwards if it runs there: it builds no server on that host until it '
    'has read its providers again, which it does every [compute] '
    'resource_provider_association_refresh seconds.'
)
#: why a provider is kept, and the way out
KEPT = {
    Obstacle.ALLOCATIONS: (
        'servers have allocations of it. Delete or evacuate them. The agent then empties it within '
        '[agent] resync_interval seconds; run this again after that. If the host is gone, run '
        'cyborg-manage host forget.'
    ),
    Obstacle.INVENTORY: (
        'it has an inventory, so its device may be back. If it is not, the agent empties the '
        'provider within [agent] placement_interval seconds; run this again then. If the host is '
        'gone, run cyborg-manage host forget.'
    ),
    Obstacle.PROVIDERS_BELOW: 'there are providers below it. Run this again when they are deleted.',
}


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        'host', help='hosts that are gone, and leftover resource providers'
    )
    commands = parser.add_subparsers(dest='action', required=True)
    gone = commands.add_parser('forget', help='unbind all requests of a host and delete it')
    gone.add_argument('hostname')
    gone.add_argument('--force', action='store_true', help='even if its agent sends heartbeats')
    gone.set_defaults(function=forget_host)
    tidy = commands.add_parser(
        'tidy', help='delete the empty resource providers of devices that are gone'
    )
    tidy.add_argument('hostname')
    tidy.add_argument(
        '--yes', action='store_true', help='delete them; without this they are listed'
    )
    tidy.set_defaults(function=tidy_host)


def forget_host(conf: cfg.ConfigOpts, options: Any) -> int:
    """Unbind the requests of a host, and delete its rows and resource providers."""
    db = revisions.open_current(conf.database.connection)
    hostname = options.hostname
    placement = _placement(conf)
    with db.reader() as session:
        imported = imported_rows.providers_of(session, hostname)
    is_known = True
    leftovers = {}
    try:  # before anything changes: if Placement does not answer, nothing does
        leftovers = placement.owned(hostname, imported)
    except errors.ProviderTreeMissing:
        is_known = False
    silent = datetime.timedelta(seconds=conf.conductor.heartbeat_timeout)
    try:
        forget.require_gone(db, hostname, None if options.force else clock.now() - silent)
    except errors.NotFound:
        if not leftovers:  # otherwise this goes on where an earlier run has ended
            raise
    for what, count in forget.forget(db, hostname).items():
        print(f'{count} {what}')
    if not is_known:
        print('Placement does not know the host')
        return 0
    published = placement.publish(hostname, [], taken_over=imported)
    stay = placement.delete(placement.owned(hostname, imported))
    if stay or not published.is_complete:
        print(
            'Some resource providers are still allocated to servers; they are reserved. '
            'Delete or evacuate those servers, then run this again.'
        )
        return 1
    print(f'Its resource providers are deleted. {REMEMBERED}')
    return 0


def tidy_host(conf: cfg.ConfigOpts, options: Any) -> int:
    """List or delete the empty providers of Cyborg that belong to no device of the host."""
    db = revisions.open_current(conf.database.connection)
    placement = _placement(conf)
    # before the rows: a device that is reported meanwhile has rows before it has providers
    owned = placement.owned(options.hostname)
    with db.reader() as session:
        wanted = deployables.providers_of(session, options.hostname)
    leftovers = {uuid: name for uuid, name in owned.items() if uuid not in wanted}
    if not leftovers:
        print('There are no leftover resource providers')
        return 0
    if options.yes:
        kept = placement.delete_empty(leftovers)
    else:
        kept = placement.obstacles(options.hostname, leftovers)
    for uuid, name in leftovers.items():
        if uuid in kept:
            print(f'{name} ({uuid}) is kept: {KEPT[kept[uuid]]}')
        elif not options.yes:
            print(f'{name} ({uuid})')
    count = len(leftovers) - len(kept)
    if options.yes:
        print(f'{count} resource providers deleted. {REMEMBERED}')
        return 1 if kept else 0
    print(
        f'{count} resource providers belong to devices that are gone; --yes deletes them. '
        f'{REMEMBERED}'
    )
    return 0


def _placement(conf: cfg.ConfigOpts) -> Placement:
    from cyborg.clients import keystone  # slow to import, and other commands do not need it

    return Placement(keystone.connect(conf, 'placement'))
