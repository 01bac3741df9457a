# SPDX-License-Identifier: Apache-2.0
"""Validates and normalizes the groups of device profiles and flavors.

The functions take the text of a client and return the groups to store. They raise ValueError with
the reason if a group is not valid.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

import os_resource_classes
import os_traits

Group = dict[str, str]

#: Placement's limit for names of classes and traits
LONGEST = 255
#: characters of the name of a profile, each of which is one of WORD
LONGEST_NAME = 255
#: each unit becomes an accelerator request, so this limits how many one POST can create
MOST_UNITS = 1024

CUSTOM = re.compile('CUSTOM_[A-Z0-9_]+')
WORD = re.compile('[A-Za-z0-9_-]+')
WORDS = f'letters, digits, hyphens and underscores, at most {LONGEST}'
FILE_NAME = re.compile('[A-Za-z0-9_.-]+')
UUID = re.compile('[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}')

#: accel: key -> (what its value must match, in words)
ACCEL_VALUES: dict[str, tuple[re.Pattern[str], str]] = {
    'bitstream_id': (UUID, 'the uuid of an image'),
    'bitstream_name': (
        FILE_NAME,
        f'letters, digits, hyphens, underscores and dots, at most {LONGEST}',
    ),
    # vendors' functions have short hexadecimal ids as well as uuids
    'function_id': (WORD, WORDS),
    'function_name': (WORD, WORDS),
    'attach_target': (re.compile('VM|host|none'), 'VM, host or none'),
    # how the device is cleaned afterwards; these override the options of the host
    'cleaning': (re.compile('none|reset|full'), 'none, reset or full'),
    'cleaning_required': (re.compile('true|false'), 'true or false'),
}
EXTRA_VALUE = (WORD, WORDS)
#: each names the image for an FPGA, so a group has at most one of them
PROGRAMS = {'bitstream_id', 'bitstream_name', 'function_id', 'function_name'}


def is_name(text: str) -> bool:
    """Returns whether a profile may have this name."""
    return len(text) <= LONGEST_NAME and WORD.fullmatch(text) is not None


def normalize(
    groups: Sequence[Mapping[str, str | int]], extra_keys: Collection[str] = ()
) -> list[Group]:
    """Returns the groups as they are stored, in the same order: names in Placement's spelling,
    amounts as strings."""
    if not groups:
        raise ValueError('it needs at least one group.')
    stored = []
    for number, group in enumerate(groups):
        try:
            stored.append(normalize_one(group, extra_keys))
        except ValueError as error:
            raise ValueError(f'group {number}: {error}') from error
    require_few(stored)
    return stored


def require_few(groups: Sequence[Group]) -> None:
    """Raises ValueError if normalized groups ask for more units than are allowed."""
    units = sum(
        int(value)
        for group in groups
        for key, value in group.items()
        if key.startswith('resources:')
    )
    if units > MOST_UNITS:
        raise ValueError(f'it asks for {units} units; at most {MOST_UNITS} are allowed.')


def classes(groups: Sequence[Mapping[str, str]]) -> set[str]:
    """Returns the resource classes that normalized groups ask for."""
    return {
        key.removeprefix('resources:')
        for group in groups
        for key in group
        if key.startswith('resources:')
    }


def normalize_one(group: Mapping[str, str | int], extra_keys: Collection[str] = ()) -> Group:
    """Returns one group as it is stored."""
    stored: Group = {}
    for key, value in group.items():
        new_key, new_value = _entry(key, value, extra_keys)
        if new_key in stored:
            raise ValueError(f'{new_key} occurs twice.')
        stored[new_key] = new_value
    if not any(key.startswith('resources:') for key in stored):
        raise ValueError('it needs at least one resources:<class>.')
    programs = sorted(PROGRAMS & {key.removeprefix('accel:') for key in stored})
    if len(programs) > 1:
        raise ValueError(
            f'only one of {", ".join(f"accel:{name}" for name in programs)} can be given.'
        )
    if (stored.get('accel:cleaning'), stored.get('accel:cleaning_required')) == ('none', 'true'):
        raise ValueError('accel:cleaning is none, so accel:cleaning_required cannot be true.')
    return stored


def with_accel(group: Mapping[str, str], properties: Mapping[str, str]) -> Group:
    """Returns a normalized group with further properties, which are given without ``accel:``."""
    return {
        **group,
        **{f'accel:{name}': _accel(name, value, ()) for name, value in properties.items()},
    }


def _entry(key: str, value: str | int, extra_keys: Collection[str]) -> tuple[str, str]:
    prefix, _, name = key.partition(':')
    entries: dict[str, Callable[[], tuple[str, str]]] = {
        'resources': lambda: (_resource_class(name), _amount(key, value)),
        'trait': lambda: (_trait(name), _necessity(key, value)),
        'accel': lambda: (name.strip(), _accel(name.strip(), value, extra_keys)),
    }
    if prefix not in entries:
        raise ValueError(
            f'{key[:64]!r} must start with resources:, trait: or accel:; groups are numbered '
            f'by Cyborg, and group_policy belongs into the flavor.'
        )
    new_name, new_value = entries[prefix]()
    return f'{prefix}:{new_name}', new_value


def spelled(name: str) -> str:
    """Returns a name in Placement's spelling: upper case and underscores."""
    # only ASCII: upper() turns some other letters into plain ones
    return name.strip().upper().replace('-', '_') if name.isascii() else name


def _resource_class(name: str) -> str:
    stored = spelled(name)
    if stored not in os_resource_classes.STANDARDS and not _is_custom(stored):
        raise ValueError(
            f'{name[:64]!r} is neither a standard resource class, such as FPGA, PGPU or VGPU, '
            f'nor CUSTOM_ followed by letters, digits and underscores.'
        )
    return stored


def _trait(name: str) -> str:
    stored = spelled(name)
    if stored not in _standard_traits() and not _is_custom(stored):
        raise ValueError(
            f'{name[:64]!r} is neither a standard trait nor CUSTOM_ followed by letters, digits '
            f'and underscores.'
        )
    return stored


def _is_custom(name: str) -> bool:
    return len(name) <= LONGEST and CUSTOM.fullmatch(name) is not None


@cache
def _standard_traits() -> frozenset[str]:
    return frozenset(os_traits.get_traits())


def _amount(key: str, value: str | int) -> str:
    text = str(value).strip()
    if not re.fullmatch('[0-9]{1,10}', text) or int(text) < 1:
        raise ValueError(f'the amount of {key[:64]} must be a whole number of at least 1.')
    return str(int(text))


def _necessity(key: str, value: str | int) -> str:
    if value not in ('required', 'forbidden'):
        raise ValueError(f'the value of {key[:64]} must be required or forbidden.')
    return str(value)


def _accel(name: str, value: str | int, extra_keys: Collection[str]) -> str:
    if name not in ACCEL_VALUES and name not in extra_keys:
        known = ', '.join([*ACCEL_VALUES, *extra_keys])
        raise ValueError(f'accel:{name[:64]} is not known; known are {known}.')
    pattern, words = ACCEL_VALUES.get(name, EXTRA_VALUE)
    text = str(value)
    if len(text) > LONGEST or not pattern.fullmatch(text):
        raise ValueError(f'the value of accel:{name} must be {words}.')
    return text
