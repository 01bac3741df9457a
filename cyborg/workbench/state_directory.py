# SPDX-License-Identifier: Apache-2.0
"""The directory of a standalone: which process uses it, and where that serves."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from cyborg import errors

LOCK = 'pid'
URL = 'url'


@contextlib.contextmanager
def owned(directory: pathlib.Path) -> Iterator[None]:
    """Create a directory for the data of one process; raises ConfigError if another one uses it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK).open('a+')
    except OSError as error:
        raise errors.ConfigError(
            why=f'{directory} cannot hold data: {error.strerror}. Choose another --state-dir.'
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise errors.ConfigError(
                why=f'Process {lock.read().strip()} uses {directory}. Stop it, or choose another '
                '--state-dir.'
            ) from None
        lock.truncate(0)
        lock.write(f'{os.getpid()}\n')
        lock.flush()
        try:
            yield
        finally:
            (directory / URL).unlink(missing_ok=True)


def announce(directory: pathlib.Path, url: str) -> None:
    """Write where the process that owns the directory serves."""
    (directory / URL).write_text(f'{url}\n')


def running_url(directory: pathlib.Path) -> str:
    """Return where the standalone of a directory serves; raises ConfigError if none runs."""
    if not _is_owned(directory):
        raise errors.ConfigError(
            why=f'No cyborg-standalone runs with {directory}. Start one with '
            f'"cyborg-standalone run --state-dir {directory}", or name its directory with '
            '--state-dir.'
        )
    try:
        return (directory / URL).read_text().strip()
    except OSError:
        raise errors.ConfigError(
            why=f'The cyborg-standalone of {directory} does not serve yet. Try again in a moment.'
        ) from None


def _is_owned(directory: pathlib.Path) -> bool:
    try:
        with (directory / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
