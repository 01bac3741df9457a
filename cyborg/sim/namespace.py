# SPDX-License-Identifier: Apache-2.0
"""Starts commands in private namespaces with a simulated host as /sys."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

CONTROLS = 'kernel/cyborg_sim'  #: the directory of /sys that controls the simulated host


def why_not() -> str | None:
    """Return why this machine cannot mount a simulated /sys, or None if it can."""
    try:
        os.close(os.open('/dev/fuse', os.O_RDWR))
    except OSError as error:
        return f'/dev/fuse cannot be used: {error.strerror}.'
    try:
        import mfusepy  # noqa: F401  (it loads libfuse when it is imported)
    except ImportError:
        return 'mfusepy is not installed: pip install mfusepy.'
    except OSError:
        return 'libfuse is not installed: apt-get install libfuse3-3.'
    if shutil.which('unshare') is None:
        return 'unshare is not installed: apt-get install util-linux.'
    tried = subprocess.run(
        [*_unshare(), 'true'], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if tried.returncode:
        return f'Private namespaces are not allowed here: {tried.stderr.strip()}.'
    return None


def enter(description: Path, command: Sequence[str]) -> NoReturn:
    """Replace this process by one that runs the command there."""
    program = command_line(description, command)
    os.execvp(program[0], program)


def command_line(description: Path, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command in such namespaces."""
    return [
        *_unshare(),
        sys.executable,
        '-P',
        '-W',
        'ignore',
        '-m',
        'cyborg.sim.mount',
        str(description),
        *command,
    ]


def _unshare() -> list[str]:
    program = ['unshare', '--mount', '--net']
    return program if os.geteuid() == 0 else [*program, '--user', '--map-root-user']
