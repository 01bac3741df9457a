# SPDX-License-Identifier: Apache-2.0
"""Private namespaces, in which a command finds a simulated host as its /sys."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

CONTROLS = 'kernel/cyborg_sim'  #: the directory of /sys that controls the simulated host


def why_not() -> str | None:
    """A sentence, if a simulated /sys cannot be had here."""
    try:
        os.close(os.open('/dev/fuse', os.O_RDWR))
    except OSError as error:
        return f'/dev/fuse cannot be used: {error.strerror}.'
    try:
        import mfusepy  # noqa: F401  (looks for the library when it is imported)
    except ImportError:
        return 'mfusepy is not installed: pip install openstack-cyborg[sim].'
    except OSError:
        return 'libfuse is not installed: apt-get install libfuse3-3.'
    if shutil.which('unshare') is None:
        return 'unshare is not installed: apt-get install util-linux.'
    tried = subprocess.run([*_unshare(), 'true'], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True)
    if tried.returncode:
        return f'Private namespaces are not allowed here: {tried.stderr.strip()}.'
    return None


def enter(description: Path, command: Sequence[str]) -> NoReturn:
    """Become a process that runs the command there, and ends as it ends."""
    program = inside(description, command)
    os.execvp(program[0], program)


def inside(description: Path, command: Sequence[str]) -> list[str]:
    """What has to be run for that."""
    return [*_unshare(), sys.executable, '-P', '-W', 'ignore', '-m', 'cyborg.sim.inside',
            str(description), *command]


def _unshare() -> list[str]:
    program = ['unshare', '--mount', '--net']
    return program if os.geteuid() == 0 else [*program, '--user', '--map-root-user']
