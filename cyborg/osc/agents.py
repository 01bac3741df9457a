# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator agent``."""

import argparse

from osc_lib.cli import format_columns

from cyborg.osc import command
from cyborg.osc.resources import Agent


class ListAgent(command.Lister):
    """List the agents of hosts, and whether they are alive and ready."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='<hostname>', help='Show the agent of this host only')
        alive = parser.add_mutually_exclusive_group()
        alive.add_argument(
            '--alive',
            action='store_const',
            const=True,
            dest='alive',
            help='Show only agents that are alive',
        )
        alive.add_argument(
            '--silent',
            action='store_const',
            const=False,
            dest='alive',
            help='Show only agents that are down',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Table:
        wanted = {'hostname': parsed_args.host, 'alive': parsed_args.alive}
        found = Agent.found(
            self.client, **{name: value for name, value in wanted.items() if value is not None}
        )
        return ('Hostname', 'Alive', 'Ready', 'Last Heartbeat', 'Drivers', 'Conflicts'), [
            (
                each.hostname,
                each.is_alive,
                each.is_ready,
                each.last_heartbeat,
                format_columns.DictColumn(
                    {driver['name']: driver['status'] for driver in each.drivers}
                ),
                len(each.conflicts),
            )
            for each in found
        ]


class ShowAgent(command.ShowOne):
    """Show the agent of a host: its drivers with their errors, and conflicts in Placement."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('agent', metavar='<agent>', help='Hostname or UUID of the agent')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Row:
        shown = Agent.one(self.client, parsed_args.agent)
        names = ('uuid', 'hostname', 'alive', 'ready', 'last_heartbeat', 'drivers', 'conflicts')
        return names, (
            shown.uuid,
            shown.hostname,
            shown.is_alive,
            shown.is_ready,
            shown.last_heartbeat,
            format_columns.ListDictColumn(shown.drivers),
            format_columns.DictColumn(shown.conflicts),
        )
