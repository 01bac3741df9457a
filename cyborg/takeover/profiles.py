# SPDX-License-Identifier: Apache-2.0
"""Imports the device profiles of the upstream service, with names and groups valid here."""

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from cyborg.db.sqlalchemy import models
from cyborg.objects import profile_groups
from cyborg.takeover.import_run import ImportRun, stamps
from cyborg.takeover.source import Row

Group = dict[str, str]
Rename = Callable[[Sequence[Group]], list[Group]]

#: resource classes of the first releases, and the standard ones that replaced them
OLD_CLASSES = {'CUSTOM_ACCELERATOR_FPGA': 'FPGA', 'CUSTOM_ACCELERATOR_GPU': 'PGPU'}
NAME_RULE = (
    'in names of device profiles, each character but letters, digits, hyphens and underscores '
    'becomes an underscore, and what is beyond 255 characters is cut off; a name that another '
    'profile has, here or in the upstream database, gets an underscore and the first eight digits '
    'of the uuid, and a number if that is taken too'
)


def import_profiles(
    run: ImportRun, rename: Rename, extra_keys: Collection[str]
) -> dict[int, models.DeviceProfile | None]:
    """Import the device profiles; returns our rows, by the number of theirs.

    :param rename: changes the groups as the operator asks
    :param extra_keys: further keys that are valid in groups
    """
    found: dict[int, models.DeviceProfile | None] = {}
    taken = {row.name: row for row in run.session.scalars(sa.select(models.DeviceProfile)).all()}
    for row in run.content['device_profiles']:
        is_there, mine = run.present('profile', models.DeviceProfile, row)
        if not is_there:
            groups, why = _groups(run, row, rename, extra_keys)
            mine = _profile(run, row, groups, why, taken)
            taken[mine.name] = mine
        found[row['id']] = mine
    return found


def _profile(
    run: ImportRun,
    row: Row,
    groups: list[Group],
    why: str | None,
    taken: dict[str, models.DeviceProfile],
) -> models.DeviceProfile:
    """Import a profile. ``why``: its groups are not valid for this reason, so it is disabled."""
    same = taken.get(row['name'])
    if same is not None and same.groups == groups:
        run.record('profile', row['uuid'], merged_into=same.uuid)
        run.note(
            f'Device profile {row["name"]} ({row["uuid"]}) is here already as {same.uuid}, '
            'with the same groups: its requests get that one.'
        )
        return same
    run.record('profile', row['uuid'])
    name = name_for(row['name'], row['uuid'], taken.keys() | _names_of_others(run, row))
    if name != row['name']:
        run.note(
            f'Device profile {row["name"]!r} ({row["uuid"]}) becomes {name}: '
            f'{NAME_RULE}. Change the flavors that name it.'
        )
    if why:
        run.note(
            f'Device profile {name} ({row["uuid"]}) is imported as it is and disabled, since '
            f'its groups are not valid here: {why}'
        )
    mine = models.DeviceProfile(
        uuid=row['uuid'],
        name=name,
        description=row['description'],
        groups=groups,
        is_enabled=not why,
        **stamps(row),
    )
    run.session.add(mine)
    run.outcome.profiles.append(
        {
            'uuid': row['uuid'],
            'name': row['name'],
            'imported_as': name,
            'groups': groups,
            'enabled': not why,
        }
    )
    return mine


def _names_of_others(run: ImportRun, row: Row) -> set[str]:
    """Returns the names of other upstream profiles that are valid here: flavors name them."""
    names = {each['name'] for each in run.content['device_profiles']}
    return {name for name in names - {row['name']} if profile_groups.is_name(name)}


def _groups(
    run: ImportRun, row: Row, rename: Rename, extra_keys: Collection[str]
) -> tuple[list[Group], str | None]:
    """Returns the groups as they are imported, and why they are not valid."""
    try:
        groups = as_text(groups_of(row['profile_json']))
    except ValueError as error:
        return [], str(error)
    try:
        new = rename(renamed(groups, _offered(run)))
        new = profile_groups.normalize(new, extra_keys)
    except ValueError as error:
        return groups, str(error)
    for number, (before, after) in enumerate(zip(groups, new, strict=True)):
        if changed := [key for key in before if key not in after]:
            run.note(
                f'Device profile {row["name"]} ({row["uuid"]}), group {number}: '
                f'{", ".join(changed)} becomes '
                f'{", ".join(key for key in after if key not in before)}.'
            )
    return new, None


def _offered(run: ImportRun) -> set[str]:
    return {row['value'] for row in run.content['attributes'] if row['key'] == 'rc'}


def name_for(name: str, uuid: str, taken: Collection[str]) -> str:
    """Returns the name under which a profile is imported; see NAME_RULE."""
    new = re.sub('[^A-Za-z0-9_-]', '_', name) or '_'
    names = (new[: profile_groups.LONGEST_NAME - len(end)] + end for end in _endings(uuid))
    return next(each for each in names if each not in taken)


def _endings(uuid: str) -> Iterator[str]:
    """Yields what is added to a name that is taken, one after the other."""
    yield ''
    yield f'_{uuid[:8]}'
    for number in itertools.count(2):
        yield f'_{uuid[:8]}_{number}'


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
