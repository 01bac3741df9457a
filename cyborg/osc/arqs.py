# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator arq``."""

import argparse

from cyborg.osc import command
from cyborg.osc.resources import HistoryStep

COLUMNS = {
    'At': 'at',
    'Event': 'event',
    'From': 'from_state',
    'To': 'to_state',
    'Hostname': 'hostname',
    'Server': 'instance_uuid',
    'By': 'actor',
    'Reason': 'reason',
}
MORE = {'Request ID': 'request_id', 'Seconds in State': 'seconds_in_state'}


class ListArqHistory(command.Lister):
    """List what happened to an accelerator request, also after it was deleted."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('arq', metavar='<arq>', help='UUID of the accelerator request')
        parser.add_argument(
            '--long', action='store_true', help='Show request ids and durations as well'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Table:
        steps = HistoryStep.found(self.client, arq_uuid=parsed_args.arq)
        return command.table(COLUMNS | (MORE if parsed_args.long else {}), steps)
