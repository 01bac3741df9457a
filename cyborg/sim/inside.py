# SPDX-License-Identifier: Apache-2.0
"""Runs a command with a simulated host as its /sys; started by cyborg-sim mount, in namespaces
that nobody else sees.

Files in /sys/kernel/cyborg_sim do what hands would do: ``plug_in``, ``pull_out``, ``fault``.
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
from cyborg.sim.tree import refuse, scratch_directory
from cyborg.sim.uevents import Sender

PATIENCE = 60.0  #: for the file system to be there, on a busy machine
#: libudev trusts nothing but sysfs otherwise.
VARIABLES = {'SYSTEMD_DEVICE_VERIFY_SYSFS': '0'}
#: Where udev keeps what it knows of the real devices.
UDEV = Path('/run/udev')
SCRIPT = '#!/bin/sh\nprintf "%s\\n" {name} "$@" > {control}\n'
#: If we are killed, what runs here must not go on with a /sys that is gone.
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
        os.chdir(here)  # libfuse leaves for the root
        host.tree.subscribe(Sender().send)
        try:
            return _run(command, tools)
        finally:
            subprocess.run(['umount', '--lazy', '/sys'], capture_output=True)


def add_controls(host: Host) -> None:
    """Let files do what is otherwise done in Python."""
    def trigger(name: str, act: Callable[[str], None]) -> None:
        def store(text: str) -> None:
            try:
                act(text)
            except (ValueError, KeyError, TypeError, yaml.YAMLError):
                raise refuse(errno.EINVAL) from None
        host.tree.trigger(f'{CONTROLS}/{name}', store)
    trigger('plug_in', lambda text: host.plug_in_spare(text) if text in host.spares
            else host.plug_in(**yaml.safe_load(text)))
    trigger('pull_out', host.pull_out)
    trigger('fault', lambda text: _fault(host, *text.split()))
    trigger('run', lambda text: _run_tool(host, text.split('\n')))


def _fault(host: Host, what: str, name: str) -> None:
    """``EIO path`` has a file fail, ``5 path`` answer after 5 seconds, ``none path`` be well."""
    if what == 'none':
        host.tree.mend(name)
    elif what.isdecimal():
        host.tree.fault(name, seconds=int(what))
    else:
        host.tree.fault(name, getattr(errno, what, None) or int(what))


def _run_tool(host: Host, command: Sequence[str]) -> None:
    try:
        host.sysfs.run(*command)
    except FileNotFoundError as error:
        raise refuse(errno.ENOENT) from error
    except (OSError, ValueError, KeyError) as error:
        raise refuse(errno.EIO) from error


def add_tools(host: Host, directory: Path) -> Path:
    """Programs by which the tools of the host's vendors are found in PATH."""
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
    with _overheard() as said:
        server = threading.Thread(target=fuse.mount, args=(host.tree, '/sys'), daemon=True)
        server.start()
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(f'/sys/{CONTROLS}'):
            if not server.is_alive() or time.monotonic() > deadline:
                raise errors.ConfigError(
                    why=f'The simulated /sys could not be mounted: {said() or "it hangs"}.')
            time.sleep(0.01)


@contextlib.contextmanager
def _overheard() -> Iterator[Callable[[], str]]:
    """Keep libfuse from the user's ears: some versions complain about nothing."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield lambda: ' '.join(os.pread(log.fileno(), 4096, 0).decode().split())
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _raise_loopback() -> None:
    """A new network namespace has one, but it is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack('16sH14x', b'lo', IFF_UP))


def _run(command: Sequence[str], tools: Path) -> int:
    path = f'{tools}:{os.environ.get("PATH", os.defpath)}'
    program = shutil.which(command[0], path=path)
    if program is None:
        raise errors.ConfigError(
            why=f'{command[0]} does not run: {os.strerror(errno.ENOENT)}.')
    running = subprocess.Popen([*LEASH, program, *command[1:]],
                               env=os.environ | VARIABLES | {'PATH': path})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the keyboard, the command has it already
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
