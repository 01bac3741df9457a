# SPDX-License-Identifier: Apache-2.0
"""Runs a command with a simulated host as its /sys. cyborg-sim mount starts it in private
namespaces.

Writes to files in /sys/kernel/cyborg_sim change the hardware: ``plug_in``, ``pull_out``,
``fault``.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from cyborg import errors
from cyborg.sim import fuse
from cyborg.sim.host import Host
from cyborg.sim.namespace import CONTROLS
from cyborg.sim.tree import kernel_error, scratch_directory
from cyborg.sim.uevents import Sender

PATIENCE = 60.0  #: seconds until the file system must be mounted, on a busy machine
#: Without it libudev ignores a /sys that is not sysfs.
VARIABLES = {'SYSTEMD_DEVICE_VERIFY_SYSFS': '0'}
#: The database of udev about the real devices.
UDEV = Path('/run/udev')
SCRIPT = '#!/bin/sh\nprintf "%s\\n" {name} "$@" > {control}\n'
#: If this process is killed, its /sys is gone, so the command must end, too.
LEASH = ('setpriv', '--pdeathsig', 'KILL')
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


def main() -> int:
    description, *command = sys.argv[1:]
    with scratch_directory() as directory:
        host = Host.described(directory / 'sys', description)
        add_controls(host)
        tools = add_tools(host, directory / 'bin')
        here = Path.cwd()
        _mount(host)
        os.chdir(here)  # libfuse changes the working directory to /
        host.tree.subscribe(Sender().send)
        try:
            return _run(command, tools)
        finally:
            subprocess.run(['umount', '--lazy', '/sys'], capture_output=True)


def add_controls(host: Host) -> None:
    """Add files that call methods of the host when they are written."""

    def trigger(name: str, act: Callable[[str], None]) -> None:
        def store(text: str) -> None:
            try:
                act(text)
            except (ValueError, KeyError, TypeError, yaml.YAMLError):
                raise kernel_error(errno.EINVAL) from None

        host.tree.trigger(f'{CONTROLS}/{name}', store)

    trigger(
        'plug_in',
        lambda text: (
            host.plug_in_spare(text)
            if text in host.spares
            else host.plug_in(**yaml.safe_load(text))
        ),
    )
    trigger('pull_out', host.pull_out)
    trigger('fault', lambda text: _fault(host, *text.split()))
    trigger('run', lambda text: _run_tool(host, text.split('\n')))


def _fault(host: Host, what: str, name: str) -> None:
    """``EIO path`` makes a file fail, ``5 path`` delays it by 5 s, ``none path`` ends both."""
    if what == 'none':
        host.tree.clear_fault(name)
    elif what.isdecimal():
        host.tree.fault(name, seconds=int(what))
    else:
        host.tree.fault(name, getattr(errno, what, None) or int(what))


def _run_tool(host: Host, command: Sequence[str]) -> None:
    try:
        host.sysfs.run(*command)
    except FileNotFoundError as error:
        raise kernel_error(errno.ENOENT) from error
    except (OSError, ValueError, KeyError) as error:
        raise kernel_error(errno.EIO) from error


def add_tools(host: Host, directory: Path) -> Path:
    """Create a program in the directory for each simulated tool."""
    directory.mkdir()
    for name in host.tools:
        program = directory / name
        program.write_text(SCRIPT.format(name=name, control=f'/sys/{CONTROLS}/run'))
        program.chmod(0o755)
    return directory


def _mount(host: Host) -> None:
    _raise_loopback()
    if UDEV.is_dir():
        subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', str(UDEV)], check=True)
    with _captured_stderr() as captured:
        server = threading.Thread(target=fuse.mount, args=(host.tree, '/sys'), daemon=True)
        server.start()
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(f'/sys/{CONTROLS}'):
            if not server.is_alive() or time.monotonic() > deadline:
                why = captured() or 'it does not respond'
                raise errors.ConfigError(why=f'The simulated /sys could not be mounted: {why}.')
            time.sleep(0.01)


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Capture the messages of libfuse: some versions print warnings that mean nothing."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield lambda: ' '.join(os.pread(log.fileno(), 4096, 0).decode().split())
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _raise_loopback() -> None:
    """Bring up the loopback interface, which is down in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack('16sH14x', b'lo', IFF_UP))


def _run(command: Sequence[str], tools: Path) -> int:
    path = f'{tools}:{os.environ.get("PATH", os.defpath)}'
    program = shutil.which(command[0], path=path)
    if program is None:
        raise errors.ConfigError(why=f'{command[0]} cannot be run: {os.strerror(errno.ENOENT)}.')
    running = subprocess.Popen(
        [*LEASH, program, *command[1:]], env=os.environ | VARIABLES | {'PATH': path}
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command, too
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: running.send_signal(number))
    status = running.wait()
    return 128 - status if status < 0 else status


if __name__ == '__main__':
    try:
        sys.exit(main())
    except errors.CyborgError as error:
        sys.exit(f'cyborg-sim: {error.faultstring}')
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f'cyborg-sim: The simulated /sys could not be prepared: {error}.')
