# SPDX-License-Identifier: Apache-2.0
"""Finds, fetches and checks an image of Glance, and gives it to a driver as a file."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cyborg import errors
from cyborg.agent import image_search
from cyborg.agent.image_files import Files
from cyborg.agent.image_search import WantedImage
from cyborg.agent.signatures import SignatureCheck, Signatures
from cyborg.clients.glance import Glance

__all__ = ['Bitstreams', 'Fetched', 'WantedImage']

LOG = log.getLogger(__name__)

#: hash algorithms with known collisions
WEAK = frozenset({'md5', 'md5-sha1', 'sha1'})
#: algorithms in [agent] allowed_bitstream_digests
ALLOWED = frozenset({'sha256', 'sha384', 'sha512'})
MIB = 1024 * 1024
#: progress is reported after this many per cent and this many seconds at least
PER_CENT, SECONDS = 10, 1.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """An image that was checked on this host."""

    uuid: str
    #: a file that only this agent can read, removed when the context ends; None: not fetched
    path: Path | None
    #: its properties whose values are strings
    properties: Mapping[str, str]


class Bitstreams:
    """Fetches images. If it raises, it has removed its files, and no device has changed."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        hostname: str,
        glance: Glance | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hostname = hostname
        self._glance = glance
        self._clock = clock
        self._timeout = conf.agent.program_timeout
        self._largest = conf.agent.max_bitstream_size * MIB
        self._allowed = frozenset(map(_digest, conf.agent.allowed_bitstream_digests))
        self._files = Files(Path(conf.state_path), hostname, conf.agent.bitstream_cache_size * MIB)
        self._signatures = (
            Signatures(glance, conf.agent.trusted_bitstream_certificates)
            if conf.agent.verify_bitstream_signatures
            else None
        )

    @property
    def has_glance(self) -> bool:
        """Whether [glance] is configured on this host."""
        return self._glance is not None

    @contextlib.contextmanager
    def fetched(
        self,
        wanted: WantedImage,
        progress: Progress = lambda sentence: None,
        loaded: str | None = None,
    ) -> Iterator[Fetched]:
        """Yield the image in a private file, after its data was checked against Glance.

        The image whose id is ``loaded`` is found, but not fetched.
        """
        deadline = self._clock() + self._timeout
        with contextlib.ExitStack() as stack:
            with _refusing(wanted.label):
                glance = self._reachable()
                image = image_search.find(
                    image_search.Limited(
                        glance,
                        lambda: self._require_time(f'{wanted.label} was not found', deadline),
                    ),
                    wanted,
                )
                if why := self._refusal(image):
                    raise errors.ImageRefused(image=image['id'], why=why)
                path = None
                if image['id'] != loaded:
                    path = self._fetch(glance, image, wanted.request_id, progress, deadline)
                    stack.callback(path.unlink, missing_ok=True)
            yield Fetched(
                image['id'],
                path,
                {name: value for name, value in image.items() if isinstance(value, str)},
            )

    def vm_image_request(
        self, uuid: str, project: str | None, request_id: str | None = None
    ) -> dict[str, str]:
        """Returns what the properties of a server's image ask for, in the form of
        WantedImage.image.

        Returns an empty dict if they ask for nothing, or if the image was deleted, which is
        common while its servers run.
        """
        glance, label = self._reachable(), f'for servers of image {uuid}'
        try:
            image = glance.image(image_search.identity(uuid, label), request_id)
            why = image_search.why_not_usable(glance, image, project, request_id)
        except errors.NotFound:
            LOG.info('Image %s of a server is gone; nothing is loaded for it.', uuid)
            return {}
        if why:
            raise errors.ImageRefused(image=label, why=why)
        return image_search.request_of(image)

    def _reachable(self) -> Glance:
        if self._glance is None:
            raise errors.Unavailable(
                f'Host {self._hostname} cannot ask Glance: set [glance] auth_type there.'
            )
        return self._glance

    def _refusal(self, image: Mapping[str, Any]) -> str | None:
        """Return why an image cannot be loaded, judged by its metadata, or None."""
        algorithm, size = image.get('os_hash_algo'), image.get('size')
        if not algorithm or not image.get('os_hash_value'):
            return 'it has no os_hash_value by which its data could be checked.'
        if (
            algorithm in WEAK
            or algorithm not in hashlib.algorithms_guaranteed
            or not hashlib.new(algorithm).digest_size  # SHAKE has no fixed length
        ):
            return f'its hash algorithm, {algorithm}, is too weak or not known.'
        if not re.fullmatch('[0-9a-fA-F]+', image['os_hash_value']):
            return 'its os_hash_value is not a hash.'
        if not isinstance(size, int) or not 0 < size <= self._largest:
            return f'it has {size} bytes; [agent] max_bitstream_size allows 1 to {self._largest}.'
        return None

    def _fetch(
        self,
        glance: Glance,
        image: Mapping[str, Any],
        request_id: str | None,
        progress: Progress,
        deadline: float,
    ) -> Path:
        """Returns a private file with an image's data, which the caller removes."""
        if not self._files.is_cached(image['size']):
            return self._download(glance, image, request_id, progress, deadline)
        name = f'{image["os_hash_algo"]}-{image["os_hash_value"].lower()}'
        with self._files.lock(name, self._rest(deadline)):
            path = self._cached(name, image, progress, deadline)
            if path is None:
                path = self._download(glance, image, request_id, progress, deadline)
                self._files.keep(name, path)
            return path

    def _cached(
        self, name: str, image: Mapping[str, Any], progress: Progress, deadline: float
    ) -> Path | None:
        path = self._files.take(name)
        if path is None:
            return None
        with self._files.removed_on_failure(path):
            progress(f'Checking image {image["id"]}, which is in the cache.')
            inspection = self._inspection(image, deadline)
            with path.open('rb') as file:
                for piece in iter(lambda: file.read(MIB), b''):
                    inspection.update(piece)
            if why := inspection.damage():
                LOG.warning('Image %s is damaged in the cache: %s', image['id'], why)
                self._files.drop(name)
                path.unlink()
                return None
            inspection.require_allowed()
            return path

    def _download(
        self,
        glance: Glance,
        image: Mapping[str, Any],
        request_id: str | None,
        progress: Progress,
        deadline: float,
    ) -> Path:
        inspection = self._inspection(image, deadline)
        progress(f'Fetching image {image["id"]} ({image["size"]} bytes).')
        with self._files.new(image['size']) as path, path.open('wb') as file:
            with contextlib.closing(glance.data(image['id'], request_id)) as pieces:
                for piece in self._with_progress(pieces, image['size'], progress):
                    if inspection.update(piece) > image['size']:
                        break
                    file.write(piece)
                    self._require_time(f'{image["id"]} was not fetched', deadline)
            if why := inspection.damage():
                raise errors.ImageRefused(image=image['id'], why=why)
            inspection.require_allowed()
            file.flush()
        return path

    def _rest(self, deadline: float) -> float:
        """Returns the seconds until the deadline."""
        return max(0.0, deadline - self._clock())

    def _require_time(self, what: str, deadline: float) -> None:
        if self._clock() > deadline:
            raise errors.Unavailable(
                f'Image {what} within {self._timeout} seconds ([agent] program_timeout): Glance is '
                'too slow.'
            )

    def _with_progress(
        self, pieces: Iterable[bytes], size: int, progress: Progress
    ) -> Iterator[bytes]:
        """Yield the pieces, and report progress now and then."""
        done, reported, at = 0, 0, self._clock()
        for piece in pieces:
            yield piece
            done += len(piece)
            share = 100 * done // size
            if share >= reported + PER_CENT and self._clock() >= at + SECONDS:
                progress(f'Fetched {share} %.')
                reported, at = share, self._clock()

    def _inspection(self, image: Mapping[str, Any], deadline: float) -> 'Inspection':
        return Inspection(
            image,
            self._allowed,
            self._signatures.check(image, self._rest(deadline)) if self._signatures else None,
        )


class Inspection:
    """Checks the data of an image in one pass: size, hashes, signature."""

    def __init__(
        self,
        image: Mapping[str, Any],
        allowed: frozenset[tuple[str, str]],
        signature: SignatureCheck | None,
    ) -> None:
        self._image = image
        self._allowed = allowed
        self._signature = signature
        self._size = 0
        self._hashes = {
            algorithm: hashlib.new(algorithm, usedforsecurity=False)
            for algorithm in {image['os_hash_algo'], *(each for each, _ in allowed)}
        }
        if {each for each, _ in allowed} == {image['os_hash_algo']}:
            # this check needs no data
            self._refuse_others([(image['os_hash_algo'], image['os_hash_value'].lower())])

    def update(self, piece: bytes) -> int:
        """Add a piece; returns the number of bytes so far."""
        self._size += len(piece)
        for each in self._hashes.values():
            each.update(piece)
        if self._signature:
            self._signature.update(piece)
        return self._size

    def damage(self) -> str | None:
        """Return how the data differs from its metadata in Glance, or None."""
        algorithm = self._image['os_hash_algo']
        if self._size != self._image['size']:
            return f'its data is not {self._image["size"]} bytes long.'
        if self._hashes[algorithm].hexdigest() != self._image['os_hash_value'].lower():
            return f'its data does not match its {algorithm} hash.'
        return None

    def require_allowed(self) -> None:
        """Raise ImageRefused if the configuration of this host does not allow the image."""
        if self._allowed:
            self._refuse_others([(name, each.hexdigest()) for name, each in self._hashes.items()])
        if self._signature:
            self._signature.verify()

    def _refuse_others(self, digests: Iterable[tuple[str, str]]) -> None:
        if self._allowed.isdisjoint(digests):
            raise errors.ImageRefused(
                image=self._image['id'],
                why='[agent] allowed_bitstream_digests of the host does not list its digest.',
            )


@contextlib.contextmanager
def _refusing(label: str) -> Iterator[None]:
    try:
        yield
    except errors.NotFound as error:
        raise errors.ImageRefused(image=label, why=error.faultstring) from error
    except OSError as error:
        raise errors.ImageRefused(
            image=label, why=f'it cannot be stored on the host: {error.strerror}.'
        ) from error


def _digest(entry: str) -> tuple[str, str]:
    """Parse an entry such as sha256:… into a pair; raises ConfigError."""
    algorithm, _, value = entry.strip().lower().partition(':')
    if (
        algorithm not in ALLOWED
        or not re.fullmatch('[0-9a-f]*', value)
        or len(value) != 2 * hashlib.new(algorithm).digest_size
    ):
        raise errors.ConfigError(
            why=f'[agent] allowed_bitstream_digests: {entry!r} is not one of '
            f'{", ".join(sorted(ALLOWED))}, a colon and a digest in hexadecimal.'
        )
    return algorithm, value
