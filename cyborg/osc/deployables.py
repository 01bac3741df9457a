# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator deployable program show``: the progress of a programming."""

import argparse
import time

from osc_lib import exceptions

from cyborg.osc import command
from cyborg.osc.resources import Deployable

PAUSE = 1.0  #: seconds between two requests while the command waits
COLUMNS = {
    'uuid': 'uuid',
    'name': 'name',
    'bitstream_id': 'bitstream_id',
    'program_image': 'program_image',
    'program_progress': 'program_progress',
    'program_error': 'program_error',
}


class ShowDeployableProgram(command.ShowOne):
    """Show which image is in a deployable, which one is being loaded, and its progress."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument('deployable', metavar='<deployable>', help='UUID of the deployable')
        parser.add_argument(
            '--wait',
            action='store_true',
            help='Return when no image is being loaded any more; fail if the last one failed',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Row:
        shown = Deployable.one(self.client, parsed_args.deployable)
        while parsed_args.wait and shown.program_image is not None:
            time.sleep(PAUSE)
            shown = Deployable.one(self.client, parsed_args.deployable)
        if parsed_args.wait and shown.program_error is not None:
            raise exceptions.CommandError(
                f'Deployable {shown.name} was not programmed: {shown.program_error}'
            )
        return command.row(COLUMNS, shown)
