# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage agents: lists agents, and disables those of hosts under maintenance."""

import datetime
from typing import Any

from oslo_config import cfg

from cyborg.cmd import startup
from cyborg.conductor.engine import hosts
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import agents, clock, engine, revisions
from cyborg.db.sqlalchemy.history import Cause

#: what both commands print
WHEN = 'Placement follows when the agent reports, after its next heartbeat at the latest'


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser('agents', help='agents of hosts, and hosts under maintenance')
    commands = parser.add_subparsers(dest='action', required=True)
    listing = commands.add_parser('list', help='list the agents')
    listing.set_defaults(function=list_agents)
    disable = commands.add_parser(
        'disable', help='bind no more requests on a host; bound requests stay'
    )
    disable.add_argument('hostname')
    disable.add_argument(
        '--reason',
        required=True,
        type=startup.reason,
        help='shown to clients whose bind is refused',
    )
    disable.set_defaults(function=disable_agent)
    enable = commands.add_parser('enable', help='offer the devices of a host again')
    enable.add_argument('hostname')
    enable.set_defaults(function=enable_agent)


def list_agents(conf: cfg.ConfigOpts, options: Any) -> int:
    """Print a line for each agent: host, whether it is up and ready, why it is disabled."""
    with revisions.open_current(conf.database.connection).reader() as session:
        found = agents.states(session)
    # by the clock of the database, which is known as soon as that is open
    silent_since = clock.now() - datetime.timedelta(seconds=conf.conductor.heartbeat_timeout)
    for each in found:
        words = [
            'up' if each.last_heartbeat >= silent_since else 'down',
            'ready' if each.is_ready else 'not ready',
        ]
        if each.disabled_reason is not None:
            words.append(f'disabled: {each.disabled_reason}')
        print(f'{each.hostname}: {", ".join(words)}')
    if not found:
        print('There is no agent')
    return 0


@engine.retried
def disable_agent(conf: cfg.ConfigOpts, options: Any) -> int:
    """Refuse binds on a host, and have its inventory be reserved in Placement."""
    with transact(revisions.open_current(conf.database.connection), Cause('operator')) as unit:
        hosts.disable(unit, options.hostname, options.reason)
    print(f'No request is bound on {options.hostname} any more. {WHEN}')
    return 0


@engine.retried
def enable_agent(conf: cfg.ConfigOpts, options: Any) -> int:
    """Allow binds on a host, and have its inventory be offered again."""
    with transact(revisions.open_current(conf.database.connection), Cause('operator')) as unit:
        hosts.disable(unit, options.hostname, None)
    print(f'Requests are bound on {options.hostname} again. {WHEN}')
    return 0
