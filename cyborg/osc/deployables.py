# SPDX-License-Identifier: Apache-2.0
"""``openstack accelerator deployable program show``: the progress of a programming."""

import argparse
from typing import Any

from osc_lib import exceptions

from cyborg.osc import command
from cyborg.osc.resources import Deployable

#: seconds between two requests while the command waits: the first pause, and the longest
PAUSES = (1.0, 5.0)
#: seconds: three attempts to fetch and to load an image, each of them as long as it may take
TIMEOUT = 3600
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
        parser.add_argument(
            '--timeout',
            metavar='<seconds>',
            type=int,
            default=TIMEOUT,
            help='With --wait: fail if an image is still being loaded after this time (default: '
            '%(default)s)',
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> command.Row:
        if parsed_args.wait:
            shown = self._wait(parsed_args.deployable, parsed_args.timeout)
        else:
            shown = Deployable.one(self.client, parsed_args.deployable)
        return command.row(COLUMNS, shown)

    def _wait(self, uuid: str, timeout: int) -> Any:
        """Return the deployable when no image is being loaded."""
        # imports oslo.messaging, which takes time that other commands do not spend
        from os_acc import polling

        for _ in polling.attempts(timeout, PAUSES):
            shown = Deployable.one(self.client, uuid)
            # servers of earlier releases have no progress before the host sends it
            if shown.program_progress is None and shown.program_image is None:
                break
        else:
            raise exceptions.CommandError(
                f'Deployable {shown.name} is still being programmed after {timeout} seconds: '
                f'{shown.program_progress}'
            )
        if shown.program_error is not None:
            raise exceptions.CommandError(
                f'Deployable {shown.name} was not programmed: {shown.program_error}'
            )
        return shown
