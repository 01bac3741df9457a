# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage host: hosts that will not come back, and what devices leave in Placement."""

import datetime
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.clients import keystone
from cyborg.clients.placement import Placement
from cyborg.conductor import forget
from cyborg.db.sqlalchemy import deployables, engine, migration, models

#: what deleting a provider does to Nova
REMEMBERED = ('Restart nova-compute there afterwards: until it reads its providers anew, which it '
              'does every [compute] resource_provider_association_refresh seconds, it builds no '
              'server on that host.')


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser('host', help='hosts that are gone, and leftovers of devices')
    commands = parser.add_subparsers(dest='action', required=True)
    gone = commands.add_parser('forget', help='declare a host gone for good')
    gone.add_argument('hostname')
    gone.add_argument('--force', action='store_true',
                      help='even if its agent was heard of a moment ago')
    gone.set_defaults(function=forget_host)
    tidy = commands.add_parser(
        'tidy', help='delete the empty resource providers of devices that are gone')
    tidy.add_argument('hostname')
    tidy.add_argument('--yes', action='store_true', help='delete them; else they are listed')
    tidy.set_defaults(function=tidy_host)


def forget_host(conf: cfg.ConfigOpts, options: Any) -> int:
    """Unbind what is bound there, and drop its rows and providers."""
    db = engine.Database(conf.database.connection)
    migration.require_head(db)
    silent = datetime.timedelta(seconds=conf.conductor.heartbeat_timeout)
    placement = Placement(keystone.connect(conf, 'placement'))
    if not options.force:
        forget.require_gone(db, options.hostname, models.now() - silent)
    for what, count in forget.forget(db, options.hostname).items():
        print(f'{count} {what}')
    try:
        published = placement.publish(options.hostname, [])
        placement.delete(placement.leftovers(options.hostname, ()))
    except errors.ProviderTreeMissing:
        print('Placement does not know the host')
        return 0
    if not published.is_settled:
        print('Some resource providers are still allocated to servers; they are reserved. '
              'Delete or evacuate those servers, then run this again.')
        return 1
    print('Its resource providers are gone')
    return 0


def tidy_host(conf: cfg.ConfigOpts, options: Any) -> int:
    """List, or delete, our providers below a compute node that no device of the host has."""
    db = engine.Database(conf.database.connection)
    migration.require_head(db)
    placement = Placement(keystone.connect(conf, 'placement'))
    with db.reader() as session:
        wanted = deployables.providers_of(session, options.hostname)
    leftovers = placement.leftovers(options.hostname, wanted)
    if not leftovers:
        print('There is nothing to tidy')
        return 0
    if not options.yes:
        for uuid, name in leftovers.items():
            print(f'{name} ({uuid})')
        print(f'{len(leftovers)} resource providers belong to devices that are gone; --yes '
              f'deletes them. {REMEMBERED}')
        return 0
    stay = placement.delete(leftovers)
    for uuid in stay:
        print(f'{leftovers[uuid]} ({uuid}) stays: servers hold a part of it')
    print(f'{len(leftovers) - len(stay)} resource providers deleted. {REMEMBERED}')
    return 1 if stay else 0
