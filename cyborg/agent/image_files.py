# SPDX-License-Identifier: Apache-2.0
"""Image files on a host: private files while an image is loaded, and a cache."""

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
    """Private files and the cache of one host. The constructor removes files of a killed agent.

    Images enter and leave the cache as hard links, which is atomic. A user of a cached image has
    its own link, so that evicting the image does not take the file away.
    """

    def __init__(self, directory: Path, hostname: str, bound: int) -> None:
        self._bound = bound
        self._prefix = f'bitstream-{hostname}-'
        self._cache = directory / f'images-{hostname}'
        self._lock = threading.Lock()
        self._image_locks: weakref.WeakValueDictionary[str, threading.Lock] = (
            weakref.WeakValueDictionary()
        )
        #: directory of private files; None: the default of tempfile
        self._place = self._cache if bound else directory if directory.is_dir() else None
        own = self._place or Path(tempfile.gettempdir())
        for place in {directory, self._cache, own}:
            for left in place.glob(f'{glob.escape(self._prefix)}*'):
                # the prefix of compute1 is also that of compute1-b, whose files stay
                if '-' not in left.name.removeprefix(self._prefix):
                    _remove(left)
        if bound:
            self._open_cache()
        elif self._cache.is_dir():
            shutil.rmtree(self._cache, ignore_errors=True)

    def is_cached(self, size: int) -> bool:
        """Return whether an image of this size is kept in the cache after use."""
        return size <= self._bound

    @contextlib.contextmanager
    def lock(self, name: str, timeout: float) -> Iterator[None]:
        """Let one thread at a time fetch an image, so that the next finds it in the cache. Raises
        Unavailable if another one has it for ``timeout`` seconds."""
        with self._lock:
            lock = self._image_locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=timeout):
            raise errors.Unavailable(
                'Another card of the host has been fetching the same image for '
                f'{timeout:.0f} seconds.'
            )
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def new(self, size: int) -> Iterator[Path]:
        """Yield a new private file, which is removed if the context raises."""
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
        """Return a private link to a cached image, which the caller removes, or None."""
        link = self._cache / f'{self._prefix}{secrets.token_hex(8)}'
        try:
            os.link(self._cache / name, link)
            os.utime(self._cache / name)  # records the time of its last use
        except FileNotFoundError:  # the image was evicted, maybe after it was linked
            return link if link.exists() else None
        except OSError as error:
            LOG.warning('The cache of images cannot be used: %s', error)
            link.unlink(missing_ok=True)
            return None
        return link

    def keep(self, name: str, path: Path) -> None:
        """Put an image into the cache, and evict the least recently used ones if it is full."""
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
                f'{error.strerror}.'
            ) from error

    def _make_room(self, size: int) -> None:
        """Evict cached images if the disk has not enough free space."""
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
        """Return (time of last use, size, path) of each cached image, least recently used first."""
        found = []
        for path in self._cache.iterdir():
            if not path.name.startswith(self._prefix):
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime_ns, status.st_size, path))
        return sorted(found)


def _remove(left: Path) -> None:
    try:
        left.unlink(missing_ok=True)
    except OSError as error:  # in a shared directory other users have files with any name
        LOG.warning('%s cannot be removed: %s', left, error.strerror)
