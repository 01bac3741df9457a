# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator usage``: for how long servers had accelerators."""

import argparse

from cyborg.osc import command
from cyborg.osc.resources import ProjectUsage

TIME = 'a date or time in ISO 8601, in UTC unless it has an offset'


class ListUsage(command.Lister):
    """List accelerator-hours by project, device profile and resource class."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            '--start',
            metavar='<time>',
            help=f'Count from then on: {TIME} (default: four weeks before the end)',
        )
        parser.add_argument(
            '--end', metavar='<time>', help=f'Count until then: {TIME} (default: now)'
        )
        parser.add_argument(
            '--project',
            metavar='<project>',
            help='Show this project only (ID). Administrators see all projects by default, others '
            'their own',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Table:
        wanted = {
            'start': parsed_args.start,
            'end': parsed_args.end,
            'project_id': parsed_args.project,
        }
        found = ProjectUsage.found(
            self.client, **{name: value for name, value in wanted.items() if value is not None}
        )
        return ('Project', 'Device Profile', 'Class', 'Requests', 'Hours'), [
            (
                each.project_id,
                each.device_profile_name,
                each.resource_class,
                each.requests,
                round(each.hours, 2),
            )
            for each in found
        ]
