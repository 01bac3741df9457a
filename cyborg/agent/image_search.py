# SPDX-License-Identifier: Apache-2.0
"""Finds the image in Glance that a request is for: by its id, its name, or what it does."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyborg import errors
from cyborg.clients.glance import Glance

#: by what a request names an image, and the properties of images in which that is looked for
PROPERTIES = {
    'bitstream_name': ('name', 'bs-name'),
    'function_id': ('function_uuid', 'accel:function_id'),
    'function_name': ('function_name', 'accel:function_name'),
}
KEYS = ('bitstream_id', *PROPERTIES)
LABELS = {'bitstream_id': '{}', 'bitstream_name': 'named {}', 'function_id': 'of function {}',
          'function_name': 'of function {}'}
#: the namespace of these keys in device profiles and in the properties of images
NAMESPACE = 'accel:'
#: formats of disks: a VM image names by the same properties what its servers need
DISKS = frozenset({'aki', 'ami', 'ari', 'iso', 'ploop', 'qcow2', 'vdi', 'vhd', 'vhdx', 'vmdk'})
#: how much of a foreign text is shown in a sentence, and how many images
SHOWN, NAMED = 64, 10


@dataclass(frozen=True)
class Wanted:
    """An image to be loaded, and what it must not contradict."""

    #: one of bitstream_id, bitstream_name, function_id, function_name
    image: Mapping[str, str]
    vendor: str | None = None
    boards: Sequence[str] = ()
    region_types: Sequence[str] = ()
    #: who must be able to see it; None: an administrator chose it
    project_id: str | None = None
    request_id: str | None = None

    def __post_init__(self) -> None:
        if len(self.image) != 1 or not set(self.image) <= set(KEYS):
            raise errors.ImageRefused(
                image='of this request', why=f'it is named by {", ".join(self.image) or "nothing"}'
                f' instead of exactly one of {", ".join(KEYS)}.')
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
        """What the image is called in sentences before it is found."""
        return LABELS[self.key].format(self.value[:SHOWN])


def find(glance: Glance, wanted: Wanted) -> dict[str, Any]:
    """Returns the image that is wanted, or raises ImageRefused, which says why there is none."""
    if wanted.key == 'bitstream_id':
        return _by_id(glance, wanted)
    try:
        found = _by_property(glance, wanted)
    except errors.BadRequest as error:
        raise errors.ImageRefused(image=wanted.label, why=error.faultstring) from error
    usable = [image for image in found if _is_offered(glance, image, wanted)]
    fitting = _preferred(
        [image for image in usable if not contradiction(image, wanted)], wanted)
    if not fitting and usable:
        raise errors.ImageRefused(
            image=wanted.label, why='none that Glance has fits: ' + ' '.join(
                f'{image["id"]}: {contradiction(image, wanted)}' for image in usable[:NAMED]))
    if not fitting:
        raise errors.ImageRefused(
            image=wanted.label, why='Glance has no active image whose '
            f'{" or ".join(PROPERTIES[wanted.key])} is that'
            + (f' and that project {wanted.project_id} owns, has accepted or that is public.'
               if wanted.project_id else '.'))
    if len(fitting) > 1:
        names = ', '.join(image['id'] for image in fitting[:NAMED])
        raise errors.ImageRefused(
            image=wanted.label, why=f'{len(fitting)} images are: {names}. Name one by its '
            'bitstream_id, or remove the property from the others.')
    return fitting[0]


def identity(value: str, label: str) -> str:
    """Returns an id as Glance has it; anything else would become part of a path."""
    try:
        return str(uuid.UUID(value))
    except ValueError:
        raise errors.ImageRefused(
            image=label, why='its id is not a UUID, as all ids of images are.') from None


def requested(image: Mapping[str, Any]) -> dict[str, str]:
    """Returns what the properties of a VM image ask for, with the keys of Wanted."""
    asked = {key: str(image[NAMESPACE + key]) for key in KEYS if image.get(NAMESPACE + key)}
    if len(asked) > 1:
        raise errors.ImageRefused(
            image=f'for servers of image {image["id"]}',
            why=f'that image has the properties {", ".join(NAMESPACE + key for key in asked)}; '
                'only one of them can be followed.')
    return asked


def contradiction(image: Mapping[str, Any], wanted: Wanted) -> str | None:
    """Where the image's own description says that it is for something else."""
    makers = [wanted.vendor, *(board.split()[0] for board in wanted.boards if board.strip())]
    boards = [*wanted.boards, *(board.partition(' ')[2] for board in wanted.boards),
              *(f'{wanted.vendor}:{board}' for board in wanted.boards)]
    for name, present in (('vendor', makers), ('board', boards),
                          ('region_uuid', wanted.region_types)):
        described = image.get(name)
        # what is not known of the deployable is for its driver to judge
        if described and any(present) and _plain(described) not in map(_plain, present):
            known = ', '.join(dict.fromkeys(filter(None, present)))
            return f'its {name} is {str(described)[:SHOWN]}; the deployable has {known}.'
    return None


def stranger(glance: Glance, image: Mapping[str, Any], project: str | None,
             request_id: str | None) -> str | None:
    """Why a project may not use an image."""
    visibility = image.get('visibility')
    if (project is None or visibility in ('public', 'community')
            or image.get('owner') == project
            or visibility == 'shared' and project in glance.members(image['id'], request_id)):
        return None
    return f'project {project} does not see it.'


def _by_id(glance: Glance, wanted: Wanted) -> dict[str, Any]:
    image = glance.image(identity(wanted.value, wanted.label), wanted.request_id)
    why = stranger(glance, image, wanted.project_id, wanted.request_id)
    if not why and image.get('status') != 'active':
        why = f'it is {image.get("status")}, not active.'
    if why := why or contradiction(image, wanted):
        raise errors.ImageRefused(image=wanted.label, why=why)
    return image


def _by_property(glance: Glance, wanted: Wanted) -> list[dict[str, Any]]:
    """Glance compares exactly, so every spelling is a question of its own."""
    is_id = wanted.key == 'function_id'
    spellings = _spellings(wanted.value) if is_id else [wanted.value]
    found = {
        image['id']: image
        for name in PROPERTIES[wanted.key] for spelling in spellings
        for image in glance.search({'status': 'active', name: spelling}, wanted.request_id)
        # some databases ignore case, and "in:" is an operator in the name of an image
        if image.get('status') == 'active' and _is_same(image.get(name), spelling, is_id)}
    return [image for _, image in sorted(found.items())
            if str(image.get('disk_format')).lower() not in DISKS]


def _is_same(present: Any, wanted: str, is_id: bool) -> bool:
    return _plain(present) == _plain(wanted) if is_id else present == wanted


def _is_offered(glance: Glance, image: Mapping[str, Any], wanted: Wanted) -> bool:
    """Whether a project would find an image in its list, without having asked for it.

    Anybody can make a community image, or share one with a project, and give it the name of
    another image: these count if they are named by their id, or were accepted.
    """
    if wanted.project_id is None or image.get('visibility') == 'public':
        return True
    if image.get('owner') == wanted.project_id:
        return True
    return (image.get('visibility') == 'shared' and
            glance.members(image['id'], wanted.request_id).get(wanted.project_id) == 'accepted')


def _preferred(images: list[dict[str, Any]], wanted: Wanted) -> list[dict[str, Any]]:
    """A VM image may have the properties in our namespace too, never those without it."""
    if wanted.key == 'bitstream_name':
        return images
    return [image for image in images if image.get(PROPERTIES[wanted.key][0])] or images


def _spellings(given: str) -> list[str]:
    """An id as given, and with and without dashes and capitals."""
    try:
        known = uuid.UUID(given)
        forms = [str(known), known.hex]
    except ValueError:  # not all ids of functions are UUIDs
        forms = [given]
    return list(dict.fromkeys([given, *map(str.lower, forms), *map(str.upper, forms)]))


def _plain(name: Any) -> str:
    """A name as one compares it: 0x8086 is 8086, a uuid needs no dashes."""
    return re.sub('[^0-9a-z]', '', str(name).lower().removeprefix('0x'))
