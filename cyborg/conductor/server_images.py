# SPDX-License-Identifier: Apache-2.0
"""Bitstreams that the image of a server asks for in its properties.

They are loaded into those accelerators of the server that can be programmed and for which neither
the flavor nor its device profile names a bitstream. If one of these names a bitstream, too, it
must be the same.
"""

from collections.abc import Collection, Mapping, Sequence

from cyborg import errors
from cyborg.conductor.engine import tasks
from cyborg.conductor.flavors import WantedGroup
from cyborg.objects import profile_groups


def followed(
    wanted: Sequence[WantedGroup],
    asked: Mapping[str, str],
    programmable: Collection[str],
    image: str,
) -> list[WantedGroup]:
    """Returns the groups with the bitstream that the server's image asks for. Raises
    ServerImageRefused if a group asks for another one.

    ``asked`` has one of bitstream_id, bitstream_name, function_id and function_name, or is empty;
    ``programmable`` are the providers that can be programmed.
    """
    return [
        each._replace(group=_joined(each.group, asked, image))
        if asked and each.provider in programmable
        else each
        for each in wanted
    ]


def _joined(group: Mapping[str, str], asked: Mapping[str, str], image: str) -> profile_groups.Group:
    own = tasks.image_of(group)
    if own and _plain(own) != _plain(asked):
        raise errors.ServerImageRefused(
            image=image,
            why=f'it asks for {_words(asked)}, but the flavor or its device profile for '
            f'{_words(own)}. Remove one of the two, or make them the same.',
        )
    if own:
        return dict(group)
    try:
        return profile_groups.with_accel(group, asked)
    except ValueError as error:
        raise errors.ServerImageRefused(image=image, why=str(error)) from error


def _plain(image: Mapping[str, str]) -> dict[str, str]:
    """Returns an image request with its id in one spelling. Names are compared exactly."""
    return {
        key: value.lower().replace('-', '') if key.endswith('_id') else value
        for key, value in image.items()
    }


def _words(image: Mapping[str, str]) -> str:
    return ', '.join(f'{key} {value[:64]}' for key, value in image.items())
