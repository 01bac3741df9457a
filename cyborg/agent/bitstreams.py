# SPDX-License-Identifier: Apache-2.0
"""From an image in Glance to a programmed deployable: fetched, checked, then given to a driver."""

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from oslo_config import cfg

from cyborg import errors, objects
from cyborg.agent import drivers
from cyborg.clients.glance import Glance

#: by which two images of one hash can be had
WEAK = frozenset({'md5', 'md5-sha1', 'sha1'})
MIB = 1024 * 1024


class Bitstreams:
    """Loads images. Until a driver is called, nothing was done to the host."""

    def __init__(self, conf: cfg.ConfigOpts, hostname: str, guards: Sequence[drivers.Guard],
                 glance: Glance | None) -> None:
        self._hostname = hostname
        self._guards = {guard.name: guard for guard in guards}
        self._glance = glance
        self._largest = conf.agent.max_bitstream_size * MIB
        self._directory = Path(conf.state_path)
        self._prefix = f'bitstream-{hostname}-'
        for left in self._directory.glob(f'{self._prefix}*'):  # we were killed then
            left.unlink(missing_ok=True)

    def load(self, programming: objects.Programming) -> None:
        """Load an image into a deployable.

        DriverFailed: the driver was called, so what was there may be gone. Any other error:
        nothing was touched.
        """
        guard = self._guards.get(programming.driver_name)
        if guard is None:
            raise errors.DriverNotFound(name=programming.driver_name,
                                        known=', '.join(self._guards) or 'none')
        if self._glance is None:
            raise errors.Unavailable(
                f'Host {self._hostname} cannot ask Glance: set [glance] auth_type there.')
        with self._fetched(self._glance, programming) as image:
            guard.program(
                programming.device_key,
                programming.deployable_name.removeprefix(f'{self._hostname}_'), image)

    @contextlib.contextmanager
    def _fetched(self, glance: Glance, programming: objects.Programming) -> Iterator[Path]:
        """The image in a file that only we can read, and only if it is what Glance says."""
        asked = programming.image_uuid, programming.request_id
        try:
            image = glance.image(*asked)
            why = self._refusal(image, programming) or _stranger(
                image, programming.project_id, lambda: glance.members(*asked))
            if why:
                raise errors.ImageRefused(image=programming.image_uuid, why=why)
            directory = self._directory if self._directory.is_dir() else None
            with tempfile.NamedTemporaryFile(prefix=self._prefix, dir=directory) as file:
                _store(file, image, glance.data(*asked))
                yield Path(file.name)
        except errors.NotFound as error:
            raise errors.ImageRefused(
                image=programming.image_uuid, why=error.faultstring) from error
        except OSError as error:
            raise errors.ImageRefused(
                image=programming.image_uuid,
                why=f'it cannot be kept: {error.strerror}.') from error

    def _refusal(self, image: dict[str, Any], programming: objects.Programming) -> str | None:
        """Why an image cannot be loaded, by what Glance tells of it."""
        if image.get('status') != 'active':
            return f'it is {image.get("status")}, not active.'
        algorithm, size = image.get('os_hash_algo'), image.get('size')
        if not algorithm or not image.get('os_hash_value'):
            return 'it has no os_hash_value by which its data could be checked.'
        if algorithm in WEAK or algorithm not in hashlib.algorithms_guaranteed:
            return f'its hash is made by {algorithm}, which is not good enough.'
        if not isinstance(size, int) or not 0 < size <= self._largest:
            return (f'it has {size} bytes; [agent] max_bitstream_size allows 1 to '
                    f'{self._largest}.')
        return _contradiction(image, programming)


def _contradiction(image: dict[str, Any], programming: objects.Programming) -> str | None:
    """Where the image's own description says that it is for something else."""
    makers = [programming.vendor, *(board.split()[0] for board in programming.boards)]
    boards = [*programming.boards, *(board.partition(' ')[2] for board in programming.boards),
              *(f'{programming.vendor}:{board}' for board in programming.boards)]
    for name, present in (('vendor', makers), ('board', boards),
                          ('region_uuid', programming.region_types)):
        wanted = image.get(name)
        # what is not known of the deployable is for its driver to judge
        if wanted and present and _plain(wanted) not in map(_plain, present):
            known = ', '.join(dict.fromkeys(filter(None, present)))
            return f'its {name} is {str(wanted)[:64]}; the deployable has {known}.'
    return None


def _plain(name: Any) -> str:
    """A name as one compares it: 0x8086 is 8086, a uuid needs no dashes."""
    return re.sub('[^0-9a-z]', '', str(name).lower().removeprefix('0x'))


def _stranger(image: dict[str, Any], project: str | None, members: Any) -> str | None:
    """Why a project may not use an image."""
    visibility = image.get('visibility')
    if (project is None or visibility in ('public', 'community')
            or image.get('owner') == project
            or visibility == 'shared' and project in members()):
        return None
    return f'project {project} does not see it.'


def _store(file: IO[bytes], image: dict[str, Any], pieces: Iterator[bytes]) -> None:
    """Write the data and hold it against size and hash on the way."""
    digest, size = hashlib.new(image['os_hash_algo'], usedforsecurity=False), 0
    for piece in pieces:
        size += len(piece)
        if size > image['size']:
            break
        digest.update(piece)
        file.write(piece)
    if size != image['size']:
        raise errors.ImageRefused(
            image=image['id'], why=f'its data does not have {image["size"]} bytes.')
    if digest.hexdigest() != image['os_hash_value'].lower():
        raise errors.ImageRefused(
            image=image['id'], why=f'its data does not have its {image["os_hash_algo"]} hash.')
    file.flush()
