# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator device handback``: what happened to devices after their use."""

import argparse

from osc_lib.cli import format_columns

from cyborg.osc import command
from cyborg.osc.resources import HandBack

RESULTS = ('open', 'done', 'failed', 'quarantined', 'cancelled')


class ListDeviceHandBack(command.Lister):
    """List how the handles of a device were released and cleaned after requests."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('device', metavar='<device>', help='UUID of the device')
        parser.add_argument('--result', choices=RESULTS, help='Show only those with this result')
        parser.add_argument(
            '--long', action='store_true', help='Show servers, steps and decisions as well'
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Table:
        wanted = {'result': parsed_args.result} if parsed_args.result else {}
        found = HandBack.found(self.client, of_device=parsed_args.device, **wanted)
        headings = ['UUID', 'Kind', 'Result', 'Handle', 'Address', 'ARQ', 'Attempts', 'Reason']
        if parsed_args.long:
            headings += ['Server', 'Project', 'Steps', 'Decision', 'Decided By', 'Finished At']
        return headings, [_row(each, parsed_args.long) for each in found]


def _row(shown: HandBack, is_long: bool) -> list[object]:
    row = [
        shown.uuid,
        shown.kind,
        shown.result,
        shown.attach_handle_uuid,
        _address(shown),
        shown.arq_uuid,
        shown.attempts,
        shown.reason,
    ]
    if is_long:
        row += [
            shown.instance_uuid,
            shown.project_id,
            format_columns.ListDictColumn(shown.steps),
            shown.decision,
            shown.decided_by,
            shown.finished_at,
        ]
    return row


def _address(shown: HandBack) -> str | None:
    info = shown.attach_handle_info
    parts = ('domain', 'bus', 'device', 'function')
    return '{}:{}:{}.{}'.format(*(info[part] for part in parts)) if info else None
