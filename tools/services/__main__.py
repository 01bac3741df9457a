# SPDX-License-Identifier: Apache-2.0
"""Runs a command with private servers; environment variables contain their URLs."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import FrameType

from tools import services
from tools.services import packages

KINDS = {
    'rabbitmq': services.rabbitmq,
    'mariadb': services.mariadb,
    'postgresql': services.postgresql,
}
#: The environment variable for the URL of each kind.
VARIABLES = {
    'rabbitmq': 'CYBORG_TEST_TRANSPORT_URL',
    'mariadb': 'CYBORG_TEST_MYSQL_URL',
    'postgresql': 'CYBORG_TEST_POSTGRESQL_URL',
}
#: Seconds that the command has to end after a signal.
PATIENCE = 20


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    # A signal to end becomes an exception, so that every with block closes on the way out.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        for program in options.need:
            packages.require(program, program)
        with contextlib.ExitStack() as stack:
            urls = {kind: stack.enter_context(KINDS[kind]()).url for kind in options.kinds}
            return _run(options.command, variables(urls))
    except (services.Missing, services.Failed) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def variables(urls: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command; the database named first is the one under test."""
    found = {VARIABLES[kind]: url for kind, url in urls.items()}
    for kind, url in urls.items():
        if kind != 'rabbitmq':
            found.setdefault('CYBORG_TEST_DATABASE_URL', url)
    return found


def _run(command: Sequence[str], found: Mapping[str, str]) -> int:
    try:
        running = subprocess.Popen(command, env=os.environ | found)
    except OSError as error:
        raise services.Failed(f'{command[0]} does not run: {error.strerror}.') from error
    try:
        status = running.wait()
    except BaseException as reason:
        # Ctrl-C reached the command as well; anything else did not.
        if not isinstance(reason, KeyboardInterrupt):
            running.terminate()
        try:
            running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        raise
    return 128 - status if status < 0 else status


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m tools.services',
        description=__doc__,
        usage='%(prog)s [--need PROGRAM] [SERVER ...] -- COMMAND ...',
    )
    parser.add_argument(
        'kinds',
        metavar='SERVER',
        nargs='*',
        type=_kind,
        help=f'which servers to start: {", ".join(KINDS)}',
    )
    parser.add_argument(
        '--need',
        metavar='PROGRAM',
        action='append',
        default=[],
        help='another program that the command needs, named like its package',
    )
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index('--') if '--' in given else len(given)
    options = parser.parse_args(given[:cut])
    options.command = given[cut + 1 :]
    if not options.command:
        parser.error('say after -- what to run with the servers')
    return options


def _kind(name: str) -> str:
    if name not in KINDS:
        raise argparse.ArgumentTypeError(f'{name} is none of {", ".join(KINDS)}')
    return name


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == '__main__':
    sys.exit(main())
