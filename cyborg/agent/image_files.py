# SPDX-License-Identifier: Apache-2.0
"""Images on the disk of a host: in private files while they are used, in a cache afterwards."""

import contextlib
import glob
import os
import secrets
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

from oslo_log import log

from cyborg import errors

LOG = log.getLogger(__name__)


class Files:
    """Private files of one host. Whatever an agent left that was killed is removed at start.

    An image enters and leaves the cache as a hard link, which happens at once or not at all, and
    what takes it from there has a link of its own, which no eviction removes.
    """

    def __init__(self, directory: Path, hostname: str, bound: int) -> None:
        self._bound = bound
        self._prefix = f'bitstream-{hostname}-'
        self._cache = directory / f'images-{hostname}'
        self._lock = threading.Lock()
        self._turns: weakref.WeakValueDictionary[str, threading.Lock] = (
            weakref.WeakValueDictionary())
        #: where private files are made; None: wherever the system has them
        self._place = self._cache if bound else directory if directory.is_dir() else None
        for place in (directory, self._cache):
            for left in place.glob(f'{glob.escape(self._prefix)}*'):
                if '-' not in left.name.removeprefix(self._prefix):  # else: a host compute1-b's
                    left.unlink(missing_ok=True)
        if bound:
            self._open_cache()
        elif self._cache.is_dir():
            shutil.rmtree(self._cache, ignore_errors=True)

    def is_cached(self, size: int) -> bool:
        """Whether an image of this size is kept after its use."""
        return size <= self._bound

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Lets one thread at a time fetch an image, so that others find it in the cache."""
        with self._lock:
            lock = self._turns.setdefault(name, threading.Lock())
        with lock:
            yield

    @contextlib.contextmanager
    def new(self, size: int) -> Iterator[Path]:
        """A private file to be written; it is removed if that fails."""
        if self._bound:
            self._make_room(size)
        handle, name = tempfile.mkstemp(prefix=self._prefix, dir=self._place)
        os.close(handle)
        with self.removed_on_failure(path := Path(name)):
            yield path

    @staticmethod
    @contextlib.contextmanager
    def removed_on_failure(path: Path) -> Iterator[None]:
        try:
            yield
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def take(self, name: str) -> Path | None:
        """Returns a private link to an image in the cache, which the caller removes."""
        link = self._cache / f'{self._prefix}{secrets.token_hex(8)}'
        try:
            os.link(self._cache / name, link)
            os.utime(self._cache / name)  # the time of its last use
        except FileNotFoundError:
            return link if link.exists() else None  # evicted after it was linked, or before
        except OSError as error:
            LOG.warning('The cache of images cannot be used: %s', error)
            link.unlink(missing_ok=True)
            return None
        return link

    def keep(self, name: str, path: Path) -> None:
        """Put an image into the cache; the least recently used ones make room for it."""
        try:
            with self._lock:
                self._shrink(self._bound - path.stat().st_size)
                os.link(path, self._cache / name)
        except FileExistsError:
            pass
        except OSError as error:
            LOG.warning('An image cannot be kept in the cache: %s', error)

    def drop(self, name: str) -> None:
        (self._cache / name).unlink(missing_ok=True)

    def _open_cache(self) -> None:
        try:
            self._cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._cache.chmod(0o700)
            self._shrink(self._bound)
        except OSError as error:
            raise errors.ConfigError(
                why=f'[agent] bitstream_cache_size is set, but {self._cache} cannot be used: '
                    f'{error.strerror}.') from error

    def _make_room(self, size: int) -> None:
        """A full disk is no reason to fail as long as the cache has a share in it."""
        lacking = size - shutil.disk_usage(self._cache).free
        if lacking > 0:
            with self._lock:
                self._shrink(sum(entry[1] for entry in self._entries()) - lacking)

    def _shrink(self, limit: int) -> None:
        entries = self._entries()
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= limit:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _entries(self) -> list[tuple[int, int, Path]]:
        """When each image of the cache was last used, its size and its place, in this order."""
        found = []
        for path in self._cache.iterdir():
            if not path.name.startswith(self._prefix):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime_ns, status.st_size, path))
        return sorted(found)
