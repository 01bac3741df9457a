# SPDX-License-Identifier: Apache-2.0
"""What a flavor without a device profile asks of accelerators, as Nova reads its extra specs.

``resources:<class>`` and ``trait:<name>`` form the unnumbered group, whose classes may come from
several providers. ``resources<suffix>:`` and ``trait<suffix>:`` form a group that one provider
serves. ``accel:`` keys belong to every group.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from cyborg import errors
from cyborg.objects import profile_groups

PROFILE_KEY = 'accel:device_profile'
#: in the place of a suffix
UNNUMBERED = ''
#: keys of groups, with Placement's grammar of suffixes
KEY = re.compile('(?P<prefix>resources|trait)(?P<suffix>[A-Za-z0-9_-]{0,64}):(?P<name>.*)',
                 re.DOTALL)
#: beginnings of standard traits that only a compute node has: in the unnumbered group, a trait
#: may be any provider's
NODE_TRAITS = ('COMPUTE_', 'HW_ARCH_', 'HW_CPU_', 'HW_NUMA_', 'MISC_', 'OWNER_NOVA', 'STORAGE_')

Specs = Mapping[str, str]
Group = profile_groups.Group


class Wanted(NamedTuple):
    """One group, and the provider that was chosen for it."""

    group: Group
    provider: str


def providers_of(providers: Mapping[str, str | Sequence[str]], suffix: str) -> Sequence[str]:
    """Those that were chosen for a group: one for all, or those of Nova's mapping."""
    if 'uuid' in providers:
        return [str(providers['uuid'])]
    chosen = providers.get(suffix, ())
    return [chosen] if isinstance(chosen, str) else chosen


def named_providers(providers: Mapping[str, str | Sequence[str]]) -> set[str]:
    """All of them."""
    return {each for suffix in providers for each in providers_of(providers, suffix)}


def class_of(group: Group) -> str:
    """The resource class that a normalized group asks for."""
    return next(key.removeprefix('resources:') for key in group if key.startswith('resources:'))


def wanted(extra_specs: Specs, providers: Mapping[str, str | Sequence[str]],
           classes: Mapping[str, str], extra_keys: Collection[str] = ()) -> list[Wanted]:
    """The groups that ask for accelerators, in the order of their suffixes.

    ``classes`` are the resource classes of those of the providers that are accelerators'. Groups
    that they do not serve are not Cyborg's. InvalidFlavor if a group cannot be understood.
    """
    if not classes:
        raise errors.BadRequest(
            'Without accel:device_profile in the flavor, selected_rp must name a resource '
            'provider of an accelerator, by "uuid" or for a request group of the flavor.')
    groups = _groups(extra_specs)
    accel = {key: value for key, value in extra_specs.items()
             if key.startswith('accel:') and key != PROFILE_KEY}
    found = [
        Wanted(_normalized(suffix, _part(suffix, group, classes[provider]) | accel, extra_keys),
               provider)
        for suffix, group in sorted(groups.items())
        for provider in providers_of(providers, suffix)
        if _amount(group, classes.get(provider)) != '0']
    if not found:
        names = ' or '.join(f'resources:{name}' for name in sorted(set(classes.values())))
        raise errors.BadRequest(
            f'The flavor asks neither for a device profile nor for {names}.')
    try:
        profile_groups.require_few([each.group for each in found])
    except ValueError as error:
        raise errors.InvalidFlavor(why=str(error)) from error
    return found


def _groups(extra_specs: Specs) -> dict[str, dict[str, str]]:
    """The entries of each group by its suffix, names as Placement spells them."""
    groups: dict[str, dict[str, str]] = {}
    for key, value in extra_specs.items():
        if found := KEY.fullmatch(key):
            prefix, suffix, name = found.groups()
            groups.setdefault(suffix, {})[f'{prefix}:{profile_groups.spelled(name)}'] = value
    return groups


def _amount(group: Mapping[str, str], resource_class: str | None) -> str:
    """What a group asks for of a class; as Nova does, none if it says nothing."""
    return group.get(f'resources:{resource_class}', '0').strip()


def _part(suffix: str, group: Mapping[str, str], resource_class: str) -> dict[str, str]:
    """The entries that the provider of this class has to satisfy."""
    if suffix != UNNUMBERED:
        return dict(group)
    return {key: value for key, value in group.items()
            if key == f'resources:{resource_class}' or (
                key.startswith('trait:')
                and not key.removeprefix('trait:').startswith(NODE_TRAITS))}


def _normalized(suffix: str, group: Mapping[str, str], extra_keys: Collection[str]) -> Group:
    try:
        return profile_groups.normalize_one(group, extra_keys)
    except ValueError as error:
        where = f'group {suffix}: ' if suffix else ''
        raise errors.InvalidFlavor(why=f'{where}{error}') from error
