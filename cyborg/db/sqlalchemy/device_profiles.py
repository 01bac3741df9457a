# SPDX-License-Identifier: Apache-2.0
"""Device profiles in SQL."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import clock, models, paging

Profile = models.DeviceProfile
Access = models.DeviceProfileProject
COLUMNS = {'name': Profile.name, 'uuid': Profile.uuid, 'is_enabled': Profile.is_enabled}


def _visible(audience: str | sa.BindParameter[str] | None) -> sa.Select[Profile]:
    """Returns a query for the profiles that a project may see; None: all profiles."""
    if audience is None:
        return sa.select(Profile)
    mine = sa.select(Access.device_profile_id).where(Access.project_id == audience)
    return sa.select(Profile).where(sa.or_(Profile.is_private.is_(False), Profile.id.in_(mine)))


_NAMED = {
    is_for_all: _visible(None if is_for_all else sa.bindparam('audience'))
    .where(Profile.name == sa.bindparam('name'))
    .with_for_update(read=True)
    for is_for_all in (True, False)
}


def _shown(
    session: orm.Session, rows: Sequence[Profile], audience: str | None
) -> list[objects.DeviceProfile]:
    """Returns objects. Of the projects of a profile, a project sees only itself."""
    projects: dict[int, list[str]] = {row.id: [] for row in rows if row.is_private}
    if projects:
        query = (
            sa.select(Access.device_profile_id, Access.project_id)
            .where(Access.device_profile_id.in_(projects))
            .order_by(Access.project_id)
        )
        if audience is not None:
            query = query.where(Access.project_id == audience)
        for id, project in session.execute(query):
            projects[id].append(project)
    return [objects.DeviceProfile.of(row, project_ids=projects.get(row.id)) for row in rows]


def find(
    session: orm.Session, audience: str | None, filters: paging.Filters, page: paging.Page
) -> list[objects.DeviceProfile]:
    """Returns one page of the profiles that match."""
    query = paging.page_of(session, _visible(audience), Profile, COLUMNS, filters, page)
    return _shown(session, session.scalars(query).all(), audience)


def get(session: orm.Session, audience: str | None, ref: str) -> objects.DeviceProfile:
    """Returns the profile of this name or uuid."""
    return _shown(session, _rows(session, audience, [ref]), audience)[0]


def _rows(
    session: orm.Session, audience: str | None, refs: Sequence[str], lock: bool = False
) -> list[Profile]:
    """Returns the rows with these names or uuids. Raises ProfileNotFound if one is missing.

    A name may look like a uuid. A profile with that uuid takes precedence.
    """
    query = (
        _visible(audience)
        .where(sa.or_(Profile.uuid.in_(refs), Profile.name.in_(refs)))
        .order_by(Profile.id)
    )
    by_ref: dict[str, Profile] = {}
    for row in session.scalars(query.with_for_update() if lock else query):
        by_ref.setdefault(row.name, row)
        by_ref[row.uuid] = row
    if missing := [ref for ref in refs if ref not in by_ref]:
        raise errors.ProfileNotFound(names=', '.join(missing))
    return [by_ref[ref] for ref in dict.fromkeys(refs)]


def names(session: orm.Session, ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Returns the uuid and the name of profiles, by row."""
    query = sa.select(Profile.id, Profile.uuid, Profile.name).where(Profile.id.in_(ids))
    return {row.id: (row.uuid, row.name) for row in session.execute(query)}


def lock_all(session: orm.Session) -> list[Profile]:
    """Returns all rows, locked."""
    return list(session.scalars(sa.select(Profile).order_by(Profile.id).with_for_update()))


def names_asked_for(session: orm.Session) -> dict[str, set[str]]:
    """Returns the resource classes and traits that each profile names, by its name."""
    return {
        name: {
            key.partition(':')[2]
            for group in groups
            for key in group
            if key.startswith(('resources:', 'trait:'))
        }
        for name, groups in session.execute(sa.select(Profile.name, Profile.groups))
    }


def named(session: orm.Session, name: str, audience: str | None = None) -> Profile:
    """Returns the profile of this name, locked, to create requests with."""
    row = session.scalar(_NAMED[audience is None], {'name': name, 'audience': audience})
    if row is None:
        raise errors.ProfileNotFound(names=name)
    if not row.is_enabled:
        raise errors.ProfileDisabled(name=name)
    return row


def create(
    session: orm.Session, profiles: Sequence[objects.DeviceProfile]
) -> list[objects.DeviceProfile]:
    """Store all profiles, or raise DuplicateProfile."""
    rows = [
        Profile(
            uuid=profile.given('uuid') or uuidutils.generate_uuid(),
            name=profile.name,
            description=profile.description,
            groups=profile.groups,
            is_enabled=profile.is_enabled,
            is_private=profile.project_ids is not None,
        )
        for profile in profiles
    ]
    _refuse_duplicates(session, rows)
    session.add_all(rows)
    _flush(session, rows)
    _grant(
        session,
        [
            (row.id, project)
            for row, profile in zip(rows, profiles, strict=True)
            for project in profile.project_ids or []
        ],
    )
    return _shown(session, rows, None)


def update(
    session: orm.Session, audience: str | None, ref: str, changes: dict[str, Any]
) -> objects.DeviceProfile:
    """Change the named fields. Existing requests keep their own copy of the groups."""
    [row] = _rows(session, audience, [ref], lock=True)
    values = changes | {'updated_at': clock.now()}
    if 'project_ids' in changes:
        projects = values.pop('project_ids')
        values['is_private'] = projects is not None
    for name, value in values.items():
        setattr(row, name, value)
    _flush(session, [row])
    if 'project_ids' in changes:
        session.execute(sa.delete(Access).where(Access.device_profile_id == row.id))
        _grant(session, [(row.id, project) for project in projects or []])
    return _shown(session, [row], audience)[0]


def _grant(session: orm.Session, pairs: Sequence[tuple[int, str]]) -> None:
    if pairs:
        session.execute(
            sa.insert(Access),
            [{'device_profile_id': id, 'project_id': project} for id, project in pairs],
        )


def _flush(session: orm.Session, rows: Sequence[Profile]) -> None:
    names = ' or '.join(row.name for row in rows)
    try:
        session.flush()
    except db_exc.DBDuplicateEntry as error:
        raise errors.DuplicateProfile(field='name', value=names) from error


def _refuse_duplicates(session: orm.Session, rows: Sequence[Profile]) -> None:
    taken = session.execute(
        sa.select(Profile.name, Profile.uuid).where(
            sa.or_(
                Profile.name.in_([row.name for row in rows]),
                Profile.uuid.in_([row.uuid for row in rows]),
            )
        )
    ).all()
    for field in ('name', 'uuid'):
        seen = {getattr(row, field) for row in taken}
        for row in rows:
            value = getattr(row, field)
            if value in seen:
                raise errors.DuplicateProfile(field=field, value=value)
            seen.add(value)


def delete(
    session: orm.Session, audience: str | None, refs: Sequence[str]
) -> list[objects.DeviceProfile]:
    """Delete all profiles, or none if one is unknown or in use; returns the deleted profiles."""
    found = _rows(session, audience, refs, lock=True)
    shown = _shown(session, found, None)
    rows = {row.id: row.name for row in found}
    used = session.scalars(
        sa.select(models.ExtArq.device_profile_id)
        .distinct()
        .where(models.ExtArq.device_profile_id.in_(rows))
    ).all()
    if used:
        raise errors.ProfileInUse(names=', '.join(rows[id] for id in used if id))
    session.execute(sa.delete(Access).where(Access.device_profile_id.in_(rows)))
    session.execute(sa.delete(Profile).where(Profile.id.in_(rows)))
    return shown
