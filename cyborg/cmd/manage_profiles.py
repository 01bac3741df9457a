# SPDX-License-Identifier: Apache-2.0
"""cyborg-manage profiles: replaces old names in device profiles after an upgrade.

A release may replace a custom resource class or trait by a standard one, or an accel: key by a
trait. The command rewrites device profiles that use the old names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg

from cyborg import errors
from cyborg.db.sqlalchemy import device_profiles, revisions
from cyborg.objects import profile_groups

#: an entry of a group: its key, and its value, or None for any value
Entry = tuple[str, str | None]
Group = dict[str, str]

FORM = (
    'OLD=NEW, each either NAME, of a resource class or a trait; or resources:NAME, trait:NAME or '
    'accel:KEY, where only one of these is meant; or accel:KEY:VALUE, which can also become '
    'trait:NAME.'
)
SYNTAX = f'{FORM} May be given several times.'


def add_commands(subparsers: Any) -> None:
    parser = subparsers.add_parser('profiles', help='device profiles')
    commands = parser.add_subparsers(dest='action', required=True)
    migrate = commands.add_parser('migrate', help='rename what device profiles ask for')
    migrate.add_argument(
        '--map', dest='maps', metavar='OLD=NEW', action='append', required=True, help=SYNTAX
    )
    migrate.add_argument(
        '--dry-run', action='store_true', help='print what would change, and change nothing'
    )
    migrate.set_defaults(function=migrate_profiles)


def migrate_profiles(conf: cfg.ConfigOpts, options: Any) -> int:
    """Rewrite all profiles with old names in one transaction. Existing requests do not change."""
    names = parse(options.maps)
    db = revisions.open_current(conf.database.connection)
    with db.writer() as session:
        changed = 0
        for row in device_profiles.lock_all(session):
            groups = _renamed(row.name, row.groups, names, conf.api.extra_accel_keys)
            if groups == row.groups:
                continue
            changed += 1
            for number, (before, after) in enumerate(zip(row.groups, groups, strict=True)):
                _print_difference(f'{row.name} ({row.uuid}), group {number}', before, after)
            if not options.dry_run:
                row.groups = groups
    if not changed:
        print('No device profile has any of the old names.')
    elif options.dry_run:
        print(f'{changed} device profiles would change; nothing is changed yet.')
    else:
        print(f'{changed} device profiles changed.')
    return 0


def parse(maps: Sequence[str]) -> dict[Entry, Entry]:
    """Return the new entry for each old one. Raises ConfigError if a map is not valid."""
    names: dict[Entry, Entry] = {}
    for text in maps:
        old, is_pair, new = text.partition('=')
        olds, news = _entries(old), _entries(new)
        if not (is_pair and old and new) or len(olds) != len(news):
            raise errors.ConfigError(why=f'--map {text} is not {FORM}')
        for before, after in zip(olds, news, strict=True):
            if before in names:
                raise errors.ConfigError(why=f'--map has two new names for {old}.')
            names[before] = _becoming(text, before, after)
    return names


def _entries(text: str) -> list[Entry]:
    prefix, _, rest = text.partition(':')
    match prefix:
        case 'resources' | 'trait' if rest:
            return [(f'{prefix}:{profile_groups.spelled(rest)}', None)]
        case 'accel' if rest:
            key, _, value = rest.partition(':')
            return [(f'accel:{key}', value or None)]
        case _ if not rest:
            name = profile_groups.spelled(prefix)
            return [(f'resources:{name}', None), (f'trait:{name}', None)]
    raise errors.ConfigError(
        why=f'{text} does not begin with resources:, trait: or accel:, and is not a plain name.'
    )


def _becoming(text: str, before: Entry, after: Entry) -> Entry:
    """Return the new entry. Raises ConfigError if the old one cannot become that."""
    (old, old_value), (new, new_value) = before, after
    kinds = old.partition(':')[0], new.partition(':')[0]
    if kinds == ('accel', 'trait') and old_value is not None:
        return new, 'required'
    if kinds[0] != kinds[1]:
        raise errors.ConfigError(
            why=f'--map {text}: only accel:KEY:VALUE can become another kind of entry, a trait.'
        )
    if (old_value is None) != (new_value is None):
        raise errors.ConfigError(why=f'--map {text}: either both have a value, or neither has.')
    return after


def _renamed(
    profile: str, groups: Sequence[Group], names: Mapping[Entry, Entry], extra_keys: Sequence[str]
) -> list[Group]:
    """Return the groups with new names. Profiles without old names are not validated."""
    try:
        renamed = [rename(group, names) for group in groups]
        if renamed != groups:
            renamed = profile_groups.normalize(renamed, extra_keys)
    except ValueError as error:
        raise errors.ConfigError(
            why=f'Nothing is changed, since device profile {profile} would not be valid any '
            f'more: {error}'
        ) from error
    return renamed


def rename(group: Group, names: Mapping[Entry, Entry]) -> Group:
    """Return a group with new names. Raises ValueError if a name would occur twice."""
    renamed: Group = {}
    for key, value in group.items():
        new_key, new_value = names.get((key, value)) or names.get((key, None)) or (key, None)
        new_value = new_value or value
        # two traits may become one; the operator must add up two amounts
        if renamed.get(new_key, new_value) != new_value or (
            new_key in renamed and not new_key.startswith('trait:')
        ):
            raise ValueError(f'{new_key} would occur twice.')
        renamed[new_key] = new_value
    return renamed


def _print_difference(where: str, before: Group, after: Group) -> None:
    def shown(group: Group, other: Group) -> str:
        return ', '.join(
            f'{key}={value}' for key, value in group.items() if other.get(key) != value
        )

    if before != after:
        print(f'{where}: {shown(before, after)} -> {shown(after, before)}')
