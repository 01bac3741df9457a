# SPDX-License-Identifier: Apache-2.0
"""Finds the image in Glance that a request asks for, by id, name or function."""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cyborg import errors

#: key in a request -> the properties of images that are searched for its value
PROPERTIES = {
    'bitstream_name': ('name', 'bs-name'),
    'function_id': ('function_uuid', 'accel:function_id'),
    'function_name': ('function_name', 'accel:function_name'),
}
KEYS = ('bitstream_id', *PROPERTIES)
LABELS = {
    'bitstream_id': '{}',
    'bitstream_name': 'named {}',
    'function_id': 'of function {}',
    'function_name': 'of function {}',
}
#: the namespace of these keys in device profiles and in the properties of images
NAMESPACE = 'accel:'
#: formats of VM images, which have the same properties for what their servers need
DISKS = frozenset({'aki', 'ami', 'ari', 'iso', 'ploop', 'qcow2', 'vdi', 'vhd', 'vhdx', 'vmdk'})
#: characters of a foreign text, and number of images, that an error shows
SHOWN, NAMED = 64, 10
#: images of other projects whose members are read in one search, with a call each
MOST_SHARED = 100


class Glance(Protocol):
    """The calls to Glance of a search."""

    def image(self, uuid: str, request_id: str | None = None) -> dict[str, Any]:
        """Returns an image with its properties."""

    def search(
        self,
        filters: Mapping[str, str],
        request_id: str | None = None,
        require_time: Callable[[], None] = lambda: None,
    ) -> list[dict[str, Any]]:
        """Returns the images with these properties."""

    def members(self, uuid: str, request_id: str | None = None) -> dict[str, str]:
        """Returns the projects with which an image is shared, each with its status."""


@dataclass(frozen=True)
class Limited:
    """Calls a function before each call to Glance, and for each image of a list. It raises an error
    if the time is over."""

    glance: Glance
    require_time: Callable[[], None]

    def image(self, uuid: str, request_id: str | None = None) -> dict[str, Any]:
        self.require_time()
        return self.glance.image(uuid, request_id)

    def search(
        self,
        filters: Mapping[str, str],
        request_id: str | None = None,
        require_time: Callable[[], None] = lambda: None,
    ) -> list[dict[str, Any]]:
        self.require_time()
        return self.glance.search(filters, request_id, self.require_time)

    def members(self, uuid: str, request_id: str | None = None) -> dict[str, str]:
        self.require_time()
        return self.glance.members(uuid, request_id)


@dataclass(frozen=True)
class WantedImage:
    """An image to load, and the facts of the deployable that it must match."""

    #: one of bitstream_id, bitstream_name, function_id, function_name
    image: Mapping[str, str]
    vendor: str | None = None
    boards: Sequence[str] = ()
    region_types: Sequence[str] = ()
    #: the project that must be able to see it; None: an administrator chose it
    project_id: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if len(self.image) != 1 or not set(self.image) <= set(KEYS):
            raise errors.ImageRefused(
                image='of this request',
                why=f'it is named by {", ".join(self.image) or "nothing"}'
                f' instead of exactly one of {", ".join(KEYS)}.',
            )
        if not self.value.strip():
            raise errors.ImageRefused(image='of this request', why=f'its {self.key} is empty.')

    @property
    def key(self) -> str:
        return next(iter(self.image))

    @property
    def value(self) -> str:
        return self.image[self.key]

    @property
    def label(self) -> str:
        """The name of the image in errors, before it is found."""
        return LABELS[self.key].format(self.value[:SHOWN])


def find(glance: Glance, wanted: WantedImage) -> dict[str, Any]:
    """Return the wanted image. Raises ImageRefused if there is none, or more than one.

    Images that other projects share are searched only if neither a public image nor one of the
    project itself matches: any user can create many of them, and each costs a call.
    """
    if wanted.key == 'bitstream_id':
        return _by_id(glance, wanted)
    try:
        found = _by_property(glance, wanted)
    except errors.BadRequest as error:
        raise errors.ImageRefused(image=wanted.label, why=error.faultstring) from error
    usable = [image for image in found if _is_own_or_public(image, wanted)]
    fitting = _matching(usable, wanted)
    unchecked: Sequence[dict[str, Any]] = ()
    if not fitting:
        accepted, unchecked = _accepted(glance, found, wanted)
        usable += accepted
        fitting = _matching(usable, wanted)
    if not fitting and usable:
        raise errors.ImageRefused(
            image=wanted.label,
            why='no image in Glance matches the deployable: '
            + ' '.join(
                f'{image["id"]}: {contradiction(image, wanted)}' for image in usable[:NAMED]
            ),
        )
    if not fitting:
        raise errors.ImageRefused(
            image=wanted.label,
            why='Glance has no active image whose '
            f'{" or ".join(PROPERTIES[wanted.key])} has this value'
            + (
                f' and that is public, owned by project {wanted.project_id} or accepted by it.'
                if wanted.project_id
                else '.'
            )
            + (
                f' Of those that other projects share, {len(unchecked)} do not match the '
                'deployable.'
                if unchecked
                else ''
            ),
        )
    if len(fitting) > 1:
        names = ', '.join(image['id'] for image in fitting[:NAMED])
        raise errors.ImageRefused(
            image=wanted.label,
            why=f'{len(fitting)} images match: {names}. Ask for one of them by '
            'bitstream_id, or remove the property from the others.',
        )
    return fitting[0]


def identity(value: str, label: str) -> str:
    """Return an id in Glance's form. Raises ImageRefused for other text, which would become part
    of a URL path."""
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise errors.ImageRefused(image=label, why='its id is not a UUID.') from None


def request_of(image: Mapping[str, Any]) -> dict[str, str]:
    """Return what the properties of a VM image ask for, with the keys of WantedImage.image."""
    label = f'for servers of image {image["id"]}'
    known = {NAMESPACE + key for key in KEYS}
    if unknown := sorted(
        name for name in image if name.startswith(NAMESPACE) and name not in known
    ):
        raise errors.ImageRefused(
            image=label,
            why=f'the properties {", ".join(unknown)[:SHOWN]} of that image are not known; known '
            f'are {", ".join(NAMESPACE + key for key in KEYS)}.',
        )
    asked = {key: str(image[NAMESPACE + key]) for key in KEYS if image.get(NAMESPACE + key)}
    if len(asked) > 1:
        raise errors.ImageRefused(
            image=label,
            why=f'that image has the properties {", ".join(NAMESPACE + key for key in asked)}; '
            'only one of them is allowed.',
        )
    return asked


def contradiction(image: Mapping[str, Any], wanted: WantedImage) -> str | None:
    """Return which property of the image does not match the deployable, or None."""
    makers = [wanted.vendor, *(board.split()[0] for board in wanted.boards if board.strip())]
    boards = [
        *wanted.boards,
        *(board.partition(' ')[2] for board in wanted.boards),
        *(f'{wanted.vendor}:{board}' for board in wanted.boards),
    ]
    for name, present in (
        ('vendor', makers),
        ('board', boards),
        ('region_uuid', wanted.region_types),
    ):
        described = image.get(name)
        # if the fact is unknown here, the driver checks it
        if described and any(present) and _plain(described) not in map(_plain, present):
            known = ', '.join(dict.fromkeys(filter(None, present)))
            return f'its {name} is {str(described)[:SHOWN]}; the deployable has {known}.'
    return None


def why_not_usable(
    glance: Glance, image: Mapping[str, Any], project: str | None, request_id: str | None
) -> str | None:
    """Return why a project may not use an image, or None if it may."""
    visibility = image.get('visibility')
    if (
        project is None
        or visibility in ('public', 'community')
        or image.get('owner') == project
        or visibility == 'shared'
        and project in glance.members(image['id'], request_id)
    ):
        return None
    return f'project {project} cannot see it.'


def _by_id(glance: Glance, wanted: WantedImage) -> dict[str, Any]:
    image = glance.image(identity(wanted.value, wanted.label), wanted.request_id)
    why = why_not_usable(glance, image, wanted.project_id, wanted.request_id)
    if not why and image.get('status') != 'active':
        why = f'it is {image.get("status")}, not active.'
    if why := why or contradiction(image, wanted):
        raise errors.ImageRefused(image=wanted.label, why=why)
    return image


def _by_property(glance: Glance, wanted: WantedImage) -> list[dict[str, Any]]:
    """Search for each spelling of the value, since Glance compares exactly."""
    is_id = wanted.key == 'function_id'
    spellings = _spellings(wanted.value) if is_id else [wanted.value]
    found = {
        image['id']: image
        for name in PROPERTIES[wanted.key]
        for spelling in spellings
        for image in glance.search({'status': 'active', name: spelling}, wanted.request_id)
        # some databases ignore case, and Glance reads "in:" in a name as an operator
        if image.get('status') == 'active' and _is_same(image.get(name), spelling, is_id)
    }
    return [
        image
        for _, image in sorted(found.items())
        if str(image.get('disk_format')).lower() not in DISKS
    ]


def _is_same(present: Any, wanted: str, is_id: bool) -> bool:
    return _plain(present) == _plain(wanted) if is_id else present == wanted


def _is_own_or_public(image: Mapping[str, Any], wanted: WantedImage) -> bool:
    return wanted.project_id is None or (
        image.get('visibility') == 'public' or image.get('owner') == wanted.project_id
    )


def _accepted(
    glance: Glance, images: Sequence[dict[str, Any]], wanted: WantedImage
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the images of other projects that the project has accepted, and those of which this
    is not known.

    Any user can create a community image, or share one with a project, under the name of another
    image. Such images are used only if the request has their id, or the project accepted them.
    Those that do not match the deployable are checked only if no other was accepted: an error then
    says why they do not match.
    """
    shared = [
        image
        for image in images
        if image.get('visibility') == 'shared' and not _is_own_or_public(image, wanted)
    ]
    matching = [image for image in shared if not contradiction(image, wanted)]
    if len(matching) > MOST_SHARED:
        raise errors.ImageRefused(
            image=wanted.label,
            why=f'other projects share {len(matching)} images that match, more than are searched '
            f'({MOST_SHARED}). Ask for one of them by bitstream_id.',
        )
    others = [image for image in shared if contradiction(image, wanted)]
    most = MOST_SHARED - len(matching)
    if accepted := [image for image in matching if _is_accepted(glance, image, wanted)]:
        return accepted, others
    return [image for image in others[:most] if _is_accepted(glance, image, wanted)], others[most:]


def _is_accepted(glance: Glance, image: Mapping[str, Any], wanted: WantedImage) -> bool:
    members = glance.members(image['id'], wanted.request_id)
    return members.get(str(wanted.project_id)) == 'accepted'


def _matching(images: Sequence[dict[str, Any]], wanted: WantedImage) -> list[dict[str, Any]]:
    """Return the images that do not contradict the deployable."""
    return _preferred([image for image in images if not contradiction(image, wanted)], wanted)


def _preferred(images: list[dict[str, Any]], wanted: WantedImage) -> list[dict[str, Any]]:
    """Prefer images that have the property without namespace, which VM images never have."""
    if wanted.key == 'bitstream_name':
        return images
    return [image for image in images if image.get(PROPERTIES[wanted.key][0])] or images


def _spellings(given: str) -> list[str]:
    """Return an id as given, with and without dashes, in lower and upper case."""
    try:
        known = uuid.UUID(given)
        forms = [str(known), known.hex]
    except ValueError:  # not all ids of functions are UUIDs
        forms = [given]
    return list(dict.fromkeys([given, *map(str.lower, forms), *map(str.upper, forms)]))


def _plain(name: Any) -> str:
    """Return a name in the form used for comparison: without 0x, dashes and upper case."""
    return re.sub('[^0-9a-z]', '', str(name).lower().removeprefix('0x'))
