# SPDX-License-Identifier: Apache-2.0
"""Finds the programs of the servers, and installs their Debian packages where that is allowed."""

import contextlib
import fcntl
import glob
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

POLICY = pathlib.Path('/usr/sbin/policy-rc.d')
#: Mirrors fail sometimes, and another process may hold the lock of apt.
PATIENT = ('-o', 'Acquire::Retries=5', '-o', 'DPkg::Lock::Timeout=600')


class Missing(Exception):
    """A program is missing and cannot be installed; the message says what to do."""


def find(name: str, *directories: str) -> str | None:
    """Return the path of a program in `directories` (patterns; newest version first) or PATH."""
    for directory in directories:
        for candidate in sorted(glob.glob(f'{directory}/{name}'), key=_version, reverse=True):
            if os.access(candidate, os.X_OK):
                return candidate
    return shutil.which(name, path=f'{os.environ.get("PATH", os.defpath)}:/usr/sbin:/sbin')


def require(package: str, name: str, *directories: str) -> str:
    """Return the path of a program; as root, install its package if it is missing."""
    if found := find(name, *directories):
        return found
    _install(package)
    if found := find(name, *directories):
        return found
    raise Missing(f'Package {package} is installed but holds no program {name}.')


def _install(package: str) -> None:
    command = f'apt-get install --no-install-recommends {package}'
    if os.geteuid() != 0 or not shutil.which('apt-get'):
        raise Missing(f'{package} is not installed; have an administrator run: {command}')
    print(f'Installing {package} with apt-get', flush=True)
    environ = os.environ | {'DEBIAN_FRONTEND': 'noninteractive'}
    with _alone(), _no_service_starts():
        for step in (['apt-get', 'update', '-qq'], [*command.split(), '-qq', '--yes']):
            done = subprocess.run(
                [*step, *PATIENT],
                env=environ,
                stdin=subprocess.DEVNULL,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            if done.returncode:
                raise Missing(
                    f'{package} could not be installed: {" ".join(step)} said:\n'
                    f'{done.stdout.strip()}'
                )


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait for other processes that install packages: apt-get does not wait for its lists."""
    with open(f'{tempfile.gettempdir()}/cyborg-packages.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _no_service_starts() -> Iterator[None]:
    """Prevent packages from starting their servers; keep an existing policy."""
    if POLICY.exists():
        yield
        return
    try:
        POLICY.write_text('#!/bin/sh\nexit 101\n')
        POLICY.chmod(0o755)
        yield
    finally:
        POLICY.unlink(missing_ok=True)


def _version(path: str) -> list[int]:
    return [int(part) for part in path.replace('.', '/').split('/') if part.isdigit()]
