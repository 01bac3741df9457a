# SPDX-License-Identifier: Apache-2.0
"""From an image in Glance to a file that a driver may load: found, fetched, checked."""

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
from cyborg.agent.image_search import Wanted
from cyborg.agent.signatures import Check, Signatures
from cyborg.clients.glance import Glance

__all__ = ['Bitstreams', 'Fetched', 'Wanted']

LOG = log.getLogger(__name__)

#: by which two images of one hash can be had
WEAK = frozenset({'md5', 'md5-sha1', 'sha1'})
#: that an entry of [agent] allowed_bitstream_digests may be made by
ALLOWED = frozenset({'sha256', 'sha384', 'sha512'})
MIB = 1024 * 1024
#: how often progress is told: after so many per cent, and so many seconds
PER_CENT, SECONDS = 10, 1.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """An image on this host, checked."""

    uuid: str
    #: a file that only this agent can read, until the end of the context; None: it was not fetched
    path: Path | None
    #: those of its properties that are text
    properties: Mapping[str, str]


class Bitstreams:
    """Fetches images. All that it raises leaves nothing behind, on the host or in a device."""

    def __init__(self, conf: cfg.ConfigOpts, hostname: str, glance: Glance | None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._hostname = hostname
        self._glance = glance
        self._clock = clock
        self._largest = conf.agent.max_bitstream_size * MIB
        self._allowed = frozenset(map(_digest, conf.agent.allowed_bitstream_digests))
        self._files = Files(
            Path(conf.state_path), hostname, conf.agent.bitstream_cache_size * MIB)
        self._signatures = (
            Signatures(glance, conf.agent.trusted_bitstream_certificates)
            if conf.agent.verify_bitstream_signatures else None)

    @contextlib.contextmanager
    def fetched(self, wanted: Wanted, progress: Progress = lambda sentence: None,
                loaded: str | None = None) -> Iterator[Fetched]:
        """The image in a file that only we can read, and only if it is what Glance says. The one
        that is ``loaded`` is not fetched."""
        with contextlib.ExitStack() as stack:
            with _refusing(wanted.label):
                image = image_search.find(glance := self._reachable(), wanted)
                if why := self._refusal(image):
                    raise errors.ImageRefused(image=image['id'], why=why)
                path = None
                if image['id'] != loaded:
                    path = self._fetch(glance, image, wanted.request_id, progress)
                    stack.callback(path.unlink, missing_ok=True)
            yield Fetched(image['id'], path, {
                name: value for name, value in image.items() if isinstance(value, str)})

    def vm_image_request(self, uuid: str, project: str | None,
                         request_id: str | None = None) -> dict[str, str]:
        """Returns what the properties of a server's image ask for, in the form of Wanted.image.

        Empty: nothing, or the image is gone, as is common while its servers run.
        """
        glance, label = self._reachable(), f'for servers of image {uuid}'
        try:
            image = glance.image(image_search.identity(uuid, label), request_id)
            why = image_search.stranger(glance, image, project, request_id)
        except errors.NotFound:
            LOG.info('Image %s of a server is gone; nothing is loaded for it.', uuid)
            return {}
        if why:
            raise errors.ImageRefused(image=label, why=why)
        return image_search.requested(image)

    def _reachable(self) -> Glance:
        if self._glance is None:
            raise errors.Unavailable(
                f'Host {self._hostname} cannot ask Glance: set [glance] auth_type there.')
        return self._glance

    def _refusal(self, image: Mapping[str, Any]) -> str | None:
        """Why an image cannot be loaded, by what Glance tells of it."""
        algorithm, size = image.get('os_hash_algo'), image.get('size')
        if not algorithm or not image.get('os_hash_value'):
            return 'it has no os_hash_value by which its data could be checked.'
        if algorithm in WEAK or algorithm not in hashlib.algorithms_guaranteed:
            return f'its hash is made by {algorithm}, which is not good enough.'
        if not re.fullmatch('[0-9a-fA-F]+', image['os_hash_value']):
            return 'its os_hash_value is not a hash.'
        if not isinstance(size, int) or not 0 < size <= self._largest:
            return (f'it has {size} bytes; [agent] max_bitstream_size allows 1 to '
                    f'{self._largest}.')
        return None

    def _fetch(self, glance: Glance, image: Mapping[str, Any], request_id: str | None,
               progress: Progress) -> Path:
        """Returns a private file with an image's data, which the caller removes."""
        if not self._files.is_cached(image['size']):
            return self._download(glance, image, request_id, progress)
        name = f'{image["os_hash_algo"]}-{image["os_hash_value"].lower()}'
        with self._files.turn(name):
            path = self._cached(name, image, progress)
            if path is None:
                path = self._download(glance, image, request_id, progress)
                self._files.keep(name, path)
            return path

    def _cached(self, name: str, image: Mapping[str, Any], progress: Progress) -> Path | None:
        path = self._files.take(name)
        if path is None:
            return None
        with self._files.removed_on_failure(path):
            progress(f'Checking image {image["id"]}, which is in the cache.')
            inspection = self._inspection(image)
            with path.open('rb') as file:
                for piece in iter(lambda: file.read(MIB), b''):
                    inspection.update(piece)
            if why := inspection.damage():
                LOG.warning('The cache has another image than %s: %s', image['id'], why)
                self._files.drop(name)
                path.unlink()
                return None
            inspection.judge()
            return path

    def _download(self, glance: Glance, image: Mapping[str, Any], request_id: str | None,
                  progress: Progress) -> Path:
        inspection = self._inspection(image)
        progress(f'Fetching image {image["id"]} ({image["size"]} bytes).')
        with self._files.new(image['size']) as path, path.open('wb') as file:
            with contextlib.closing(glance.data(image['id'], request_id)) as pieces:
                for piece in self._told(pieces, image['size'], progress):
                    if inspection.update(piece) > image['size']:
                        break
                    file.write(piece)
            if why := inspection.damage():
                raise errors.ImageRefused(image=image['id'], why=why)
            inspection.judge()
            file.flush()
        return path

    def _told(self, pieces: Iterable[bytes], size: int, progress: Progress) -> Iterator[bytes]:
        """The pieces, while their share of the whole is told now and then."""
        done, told, at = 0, 0, self._clock()
        for piece in pieces:
            yield piece
            done += len(piece)
            share = 100 * done // size
            if share >= told + PER_CENT and self._clock() >= at + SECONDS:
                progress(f'Fetched {share} %.')
                told, at = share, self._clock()

    def _inspection(self, image: Mapping[str, Any]) -> 'Inspection':
        return Inspection(image, self._allowed,
                          self._signatures.check(image) if self._signatures else None)


class Inspection:
    """Holds the data of an image, in one pass, against what is said of it."""

    def __init__(self, image: Mapping[str, Any], allowed: frozenset[tuple[str, str]],
                 signature: Check | None) -> None:
        self._image = image
        self._allowed = allowed
        self._signature = signature
        self._size = 0
        self._hashes = {
            algorithm: hashlib.new(algorithm, usedforsecurity=False)
            for algorithm in {image['os_hash_algo'], *(each for each, _ in allowed)}}
        if {each for each, _ in allowed} == {image['os_hash_algo']}:
            # known without any data
            self._refuse_others([(image['os_hash_algo'], image['os_hash_value'].lower())])

    def update(self, piece: bytes) -> int:
        """Returns how many bytes there are by now."""
        self._size += len(piece)
        for each in self._hashes.values():
            each.update(piece)
        if self._signature:
            self._signature.update(piece)
        return self._size

    def damage(self) -> str | None:
        """Where the data is not what Glance says of it."""
        algorithm = self._image['os_hash_algo']
        if self._size != self._image['size']:
            return f'its data does not have {self._image["size"]} bytes.'
        if self._hashes[algorithm].hexdigest() != self._image['os_hash_value'].lower():
            return f'its data does not have its {algorithm} hash.'
        return None

    def judge(self) -> None:
        """Refuses an image that this host must not load, although it is whole."""
        if self._allowed:
            self._refuse_others([(name, each.hexdigest()) for name, each in self._hashes.items()])
        if self._signature:
            self._signature.verify()

    def _refuse_others(self, digests: Iterable[tuple[str, str]]) -> None:
        if self._allowed.isdisjoint(digests):
            raise errors.ImageRefused(
                image=self._image['id'],
                why='[agent] allowed_bitstream_digests of the host does not have it.')


@contextlib.contextmanager
def _refusing(label: str) -> Iterator[None]:
    try:
        yield
    except errors.NotFound as error:
        raise errors.ImageRefused(image=label, why=error.faultstring) from error
    except OSError as error:
        raise errors.ImageRefused(
            image=label, why=f'it cannot be kept: {error.strerror}.') from error


def _digest(entry: str) -> tuple[str, str]:
    """sha256:… as a pair."""
    algorithm, _, value = entry.strip().lower().partition(':')
    if (algorithm not in ALLOWED or not re.fullmatch('[0-9a-f]*', value)
            or len(value) != 2 * hashlib.new(algorithm).digest_size):
        raise errors.ConfigError(
            why=f'[agent] allowed_bitstream_digests: {entry!r} is not one of '
                f'{", ".join(sorted(ALLOWED))}, a colon and a digest in hexadecimal.')
    return algorithm, value
