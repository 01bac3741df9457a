# SPDX-License-Identifier: Apache-2.0
"""Reads which accelerators a flavor without a device profile asks for in its extra specs.

``resources:<class>`` and ``trait:<name>`` form the unnumbered group, whose classes may come from
several providers. ``resources<suffix>:`` and ``trait<suffix>:`` form a group that one provider
serves. ``accel:`` keys belong to every group, and so do ``bitstream:<id>=required`` and
``function:<id or name>=required``, which name an image in a shorter way.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from cyborg import errors
from cyborg.objects import profile_groups

PROFILE_KEY = 'accel:device_profile'
#: the suffix of the unnumbered group
UNNUMBERED = ''
#: keys of groups, with Placement's grammar of suffixes
KEY = re.compile(
    '(?P<prefix>resources|trait)(?P<suffix>[A-Za-z0-9_-]{0,64}):(?P<name>.*)', re.DOTALL
)
ACCEL = 'accel:'
REQUIRED = 'required'
#: prefixes of standard traits that only a compute node has. In the unnumbered group a trait may
#: be that of any provider, so these are not required of the accelerator.
NODE_TRAITS = ('COMPUTE_', 'HW_ARCH_', 'HW_CPU_', 'HW_NUMA_', 'MISC_', 'OWNER_NOVA', 'STORAGE_')

Specs = Mapping[str, str]
Group = profile_groups.Group


class WantedGroup(NamedTuple):
    """One group, and the provider that was chosen for it."""

    group: Group
    provider: str


def providers_of(providers: Mapping[str, str | Sequence[str]], suffix: str) -> Sequence[str]:
    """Returns the providers that were chosen for a group: one for all groups, or those of Nova's
    mapping."""
    if 'uuid' in providers:
        return [str(providers['uuid'])]
    chosen = providers.get(suffix, ())
    return [chosen] if isinstance(chosen, str) else chosen


def named_providers(providers: Mapping[str, str | Sequence[str]]) -> set[str]:
    """Returns the providers of all groups."""
    return {each for suffix in providers for each in providers_of(providers, suffix)}


def class_of(group: Group) -> str:
    """Returns the resource class that a normalized group asks for."""
    return next(key.removeprefix('resources:') for key in group if key.startswith('resources:'))


def wanted(
    extra_specs: Specs,
    providers: Mapping[str, str | Sequence[str]],
    classes: Mapping[str, str],
    extra_keys: Collection[str] = (),
) -> list[WantedGroup]:
    """Returns the groups that ask for accelerators, in the order of their suffixes. Raises
    InvalidFlavor if a group cannot be parsed.

    ``classes`` are the resource classes of the providers that belong to accelerators. Groups for
    other resource classes are not Cyborg's.
    """
    if not classes:
        raise errors.BadRequest(
            'Without accel:device_profile in the flavor, selected_rp must name a resource '
            'provider of an accelerator, by "uuid" or for a request group of the flavor.'
        )
    groups = _groups(extra_specs)
    accel = _accel(extra_specs)
    found = [
        WantedGroup(
            _normalized(suffix, _part(suffix, group, classes[provider]) | accel, extra_keys),
            provider,
        )
        for suffix, group in sorted(groups.items())
        for provider in providers_of(providers, suffix)
        if _amount(group, classes.get(provider)) != '0'
    ]
    if not found:
        names = ' or '.join(f'resources:{name}' for name in sorted(set(classes.values())))
        raise errors.BadRequest(f'The flavor asks neither for a device profile nor for {names}.')
    try:
        profile_groups.require_few([each.group for each in found])
    except ValueError as error:
        raise errors.InvalidFlavor(why=str(error)) from error
    return found


def _groups(extra_specs: Specs) -> dict[str, dict[str, str]]:
    """Returns the entries of each group by its suffix, with names as Placement spells them."""
    groups: dict[str, dict[str, str]] = {}
    for key, value in extra_specs.items():
        if found := KEY.fullmatch(key):
            prefix, suffix, name = found.groups()
            groups.setdefault(suffix, {})[f'{prefix}:{profile_groups.spelled(name)}'] = value
    return groups


def _accel(extra_specs: Specs) -> dict[str, str]:
    """Returns the entries that belong to every group, with the keys of device profiles."""
    entries = {
        key: value
        for key, value in extra_specs.items()
        if key.startswith(ACCEL) and key != PROFILE_KEY
    }
    for key, value in extra_specs.items():
        if (found := _shorthand(key)) is None:
            continue
        name, wanted = found
        if value != REQUIRED:
            raise errors.InvalidFlavor(why=f'the value of {key[:64]} must be required.')
        if name in entries:
            raise errors.InvalidFlavor(why=f'{key[:64]} contradicts {name}={entries[name]}.')
        entries[name] = wanted
    return entries


def _shorthand(key: str) -> tuple[str, str] | None:
    """Returns the key and value of a device profile for bitstream:<id> or function:<id or name>,
    or None for another key."""
    prefix, _, name = key.partition(':')
    is_id = profile_groups.UUID.fullmatch(name) is not None
    match prefix:
        case 'bitstream' if not is_id:
            raise errors.InvalidFlavor(
                why=f'{key[:64]!r} is not bitstream: and the uuid of an image; an image is asked '
                f'for by its name with accel:bitstream_name.'
            )
        case 'bitstream':
            return f'{ACCEL}bitstream_id', name
        case 'function':
            return f'{ACCEL}{"function_id" if is_id else "function_name"}', name
    return None


def _amount(group: Mapping[str, str], resource_class: str | None) -> str:
    """Returns the amount of a class that a group asks for; '0' if it does not name the class."""
    return group.get(f'resources:{resource_class}', '0').strip()


def _part(suffix: str, group: Mapping[str, str], resource_class: str) -> dict[str, str]:
    """Returns the entries of a group that a provider of this class must satisfy."""
    if suffix != UNNUMBERED:
        return dict(group)
    return {
        key: value
        for key, value in group.items()
        if key == f'resources:{resource_class}'
        or (key.startswith('trait:') and not key.removeprefix('trait:').startswith(NODE_TRAITS))
    }


def _normalized(suffix: str, group: Mapping[str, str], extra_keys: Collection[str]) -> Group:
    try:
        return profile_groups.normalize_one(group, extra_keys)
    except ValueError as error:
        where = f'group {suffix}: ' if suffix else ''
        raise errors.InvalidFlavor(why=f'{where}{error}') from error
