# SPDX-License-Identifier: Apache-2.0
"""Device profiles of the upstream service, as this service stores them."""

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from cyborg.objects import profile_groups

Group = dict[str, str]
Rename = Callable[[Sequence[Group]], list[Group]]

#: resource classes of the first releases, and the standard ones that replaced them
OLD_CLASSES = {'CUSTOM_ACCELERATOR_FPGA': 'FPGA', 'CUSTOM_ACCELERATOR_GPU': 'PGPU'}
NAME_RULE = (
    'in names of device profiles, each character but letters, digits, hyphens and underscores '
    'becomes an underscore, and what is beyond 255 characters is cut off; a name that is taken '
    'gets an underscore and the first eight digits of the uuid'
)


def name_for(name: str, uuid: str, taken: Collection[str]) -> str:
    """Returns the name under which a profile is imported; see NAME_RULE."""
    new = re.sub('[^A-Za-z0-9_-]', '_', name)[: profile_groups.LONGEST_NAME] or '_'
    if new not in taken:
        return new
    return f'{new[: profile_groups.LONGEST_NAME - 9]}_{uuid[:8]}'


def groups_of(text: str) -> list[dict[str, Any]]:
    """Returns the groups that are stored in a profile. Raises ValueError if there are none."""
    parsed = json.loads(text)
    groups = parsed.get('groups') if isinstance(parsed, dict) else parsed
    if not isinstance(groups, list) or not all(isinstance(each, dict) for each in groups):
        raise ValueError('it has no list of groups.')
    return groups


def as_text(groups: Sequence[dict[str, Any]]) -> list[Group]:
    """Returns groups whose keys and values are strings."""
    return [{str(key): str(value) for key, value in group.items()} for group in groups]


def renamed(groups: Sequence[Group], offered: Collection[str]) -> list[Group]:
    """Returns groups with standard classes in the place of old ones that no device offers."""
    return [
        {_new_key(key, group, offered): value for key, value in group.items()} for group in groups
    ]


def _new_key(key: str, group: Group, offered: Collection[str]) -> str:
    prefix, _, name = key.partition(':')
    old = profile_groups.spelled(name)
    new = f'resources:{OLD_CLASSES.get(old)}'
    is_old = prefix == 'resources' and old in OLD_CLASSES and old not in offered
    return new if is_old and new not in group else key
