# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage host: a host that will not come back."""

import datetime
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.clients import keystone
from cyborg.clients.placement import Placement
from cyborg.conductor import forget
from cyborg.db.sqlalchemy import engine, migration, models


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser('host', help='hosts that are gone')
    commands = parser.add_subparsers(dest='action', required=True)
    gone = commands.add_parser('forget', help='declare a host gone for good')
    gone.add_argument('hostname')
    gone.add_argument('--force', action='store_true',
                      help='even if its agent was heard of a moment ago')
    gone.set_defaults(function=forget_host)


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
    except errors.ProviderTreeMissing:
        print('Placement does not know the host')
        return 0
    if not published.is_settled:
        print('Some resource providers are still allocated to servers; they are reserved. '
              'Delete or evacuate those servers, then run this again.')
        return 1
    print('Its resource providers are gone')
    return 0
