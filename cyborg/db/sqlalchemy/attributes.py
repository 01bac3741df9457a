# SPDX-License-Identifier: Apache-2.0
"""Attributes in SQL: facts about deployables, told by drivers or added by administrators.

A deployable's resource class and traits are attributes too (``rc``, ``trait0``…), as clients
know them, and so is what others have taken of it (``reserved``); this module is the only one
that knows that.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging

Attribute, Deployable = models.Attribute, models.Deployable
PARENT = orm.aliased(Attribute)
SHOWN = (Attribute.uuid, Attribute.deployable_id, Attribute.key, Attribute.value,
         Attribute.created_at, Attribute.updated_at, Deployable.uuid.label('deployable_uuid'),
         PARENT.uuid.label('parent_uuid'))
FILTERS = {'uuid': Attribute.uuid, 'deployable_id': Attribute.deployable_id,
           'deployable_uuid': Deployable.uuid, 'parent_uuid': PARENT.uuid,
           'key': Attribute.key, 'value': Attribute.value}
RESOURCE_CLASS, RESERVED = 'rc', 'reserved'
TRAIT = re.compile(r'trait\d+')
#: may tell what Placement is told of a deployable: its class or a trait
IS_PUBLISHED = sa.and_(
    Attribute.is_users.is_(False), Attribute.parent_attribute_id.is_(None),
    sa.or_(Attribute.key == RESOURCE_CLASS, Attribute.key.like('trait%')))

QUERY = (sa.select(*SHOWN).join(Deployable, Attribute.deployable_id == Deployable.id)
         .outerjoin(PARENT, Attribute.parent_attribute_id == PARENT.id))
TOP = QUERY.where(Attribute.parent_attribute_id.is_(None))


def find(session: orm.Session, filters: paging.Filters, page: paging.Page,
         nested: bool = False) -> list[objects.Attribute]:
    """Those that match, a page of them; nested, those at the top with all that is below."""
    query = TOP if nested and not {'parent_uuid', 'uuid'} & filters.keys() else QUERY
    query = paging.page_of(session, query, Attribute, FILTERS, filters, page)
    found = [objects.Attribute.of(row) for row in session.execute(query)]
    if nested and found:
        _add_children(session, found)
    return found


def _add_children(session: orm.Session, found: Sequence[objects.Attribute]) -> None:
    """Put those that are below these inside them."""
    rows = session.execute(QUERY.where(
        Attribute.deployable_id.in_({each.deployable_id for each in found}),
        Attribute.parent_attribute_id.is_not(None)).order_by(Attribute.id))
    below = [objects.Attribute.of(row) for row in rows]
    by_uuid = {each.uuid: each for each in (*below, *found)}
    for each in below:
        if each.parent_uuid in by_uuid:
            by_uuid[each.parent_uuid].children.append(each)


def get(session: orm.Session, uuid: str, nested: bool = False) -> objects.Attribute:
    """One attribute."""
    found = find(session, {'uuid': uuid}, {}, nested)
    if not found:
        raise errors.AttributeNotFound(uuid=uuid)
    return found[0]


def create(session: orm.Session, deployable: str, key: str, value: str,
           parent_uuid: str | None = None) -> objects.Attribute:
    """Add one that no report takes away, to a deployable named by uuid or number."""
    named = Deployable.uuid == deployable
    if deployable.isdecimal() and len(deployable) < 10:  # wider than no database's integer
        named = sa.or_(named, Deployable.id == int(deployable))
    owner = session.scalar(sa.select(Deployable).where(named))
    if owner is None:
        raise errors.DeployableNotFound(uuid=deployable)
    row = Attribute(deployable_id=owner.id, key=key, value=value, is_users=True,
                    parent=_parent(session, owner, parent_uuid))
    session.add(row)
    session.flush()
    return objects.Attribute.of(row, deployable_uuid=owner.uuid, parent_uuid=parent_uuid,
                                children=[])


def _parent(session: orm.Session, owner: Deployable, uuid: str | None) -> Attribute | None:
    if uuid is None:
        return None
    # held until we are done, so that it does not go meanwhile
    row = session.scalar(sa.select(Attribute).with_for_update(read=True).where(
        Attribute.uuid == uuid, Attribute.deployable_id == owner.id))
    if row is None:
        raise errors.AttributeNotFound(uuid=uuid)
    return row


def delete(session: orm.Session, uuid: str) -> None:
    """Remove one and all below it. A driver's comes back with its next report."""
    owner = sa.select(Attribute.deployable_id).where(Attribute.uuid == uuid)
    rows = session.execute(
        sa.select(Attribute.id, Attribute.uuid, Attribute.parent_attribute_id)
        .where(Attribute.deployable_id.in_(owner)).with_for_update()).all()
    gone = {row.id for row in rows if row.uuid == uuid}
    if not gone:
        raise errors.AttributeNotFound(uuid=uuid)
    while below := {row.id for row in rows if row.parent_attribute_id in gone} - gone:
        gone |= below
    # apart from one another first: databases look at the rows of a statement one by one
    session.execute(sa.update(Attribute).where(Attribute.id.in_(gone))
                    .values(parent_attribute_id=None))
    session.execute(sa.delete(Attribute).where(Attribute.id.in_(gone)))


# -- as parts of a deployable ----------------------------------------------------------------


def told(deployable: objects.Deployable) -> list[objects.Attribute]:
    """All that a driver says of a deployable, its class and traits among it."""
    named = [(RESOURCE_CLASS, deployable.resource_class)] if deployable.resource_class else []
    named += [(f'trait{number}', trait) for number, trait in enumerate(deployable.traits)]
    named += [(RESERVED, str(deployable.reserved))] if deployable.reserved else []
    return [*(objects.Attribute(key=key, value=value) for key, value in named),
            *deployable.attributes]


def update(owner: Deployable, wanted: Sequence[objects.Attribute],
           parent: Attribute | None = None) -> None:
    """Make the driver's attributes of a deployable what it says now; keys tell them apart."""
    rows = {row.key: row for row in owner.attributes
            if row.parent is parent and not row.is_users}
    # one that a driver says twice must not become a row more with every report
    for attribute in {each.key: each for each in wanted}.values():
        row = rows.pop(attribute.key, None)
        if row is None:
            row = Attribute(key=attribute.key, value=attribute.value, parent=parent)
            owner.attributes.append(row)
        elif row.value != attribute.value:
            row.value = attribute.value
        update(owner, attribute.children, row)
    for row in rows.values():
        update(owner, [], row)
        for child in owner.attributes:
            if child.parent is row:  # a user's, and it stays
                child.parent = parent
        owner.attributes.remove(row)


_TABLE = Attribute.__table__
_AT_TOP = (sa.select(_TABLE.c.deployable_id, _TABLE.c.key, _TABLE.c.value, _TABLE.c.is_users)
           .where(_TABLE.c.deployable_id.in_(models.any_of('ids')),
                  _TABLE.c.parent_attribute_id.is_(None)).order_by(_TABLE.c.id))


def of_deployables(session: orm.Session, ids: Collection[int]) -> dict[int, list[Any]]:
    """What a list of deployables shows of their attributes: keys and values, in one query."""
    found: dict[int, list[Any]] = {id: [] for id in ids}
    for row in session.execute(_AT_TOP, {'ids': list(ids)}):
        found[row.deployable_id].append(row)
    return found


def resource_class(rows: Iterable[Attribute]) -> str | None:
    """What a deployable is counted as."""
    return next((row.value for row in rows
                 if row.key == RESOURCE_CLASS and not row.is_users), None)


def reserved(rows: Iterable[Attribute]) -> int:
    """How much of a deployable cannot be had, because others use what it needs."""
    return next((int(row.value) for row in rows
                 if row.key == RESERVED and not row.is_users
                 and row.parent_attribute_id is None), 0)


def traits(rows: Iterable[Attribute]) -> list[str]:
    """What a deployable can do."""
    return [row.value for row in rows
            if not row.is_users and row.parent_attribute_id is None
            and TRAIT.fullmatch(row.key)]


def values(rows: Iterable[Attribute], key: str) -> list[str]:
    """What a driver says under a key, of which there may be several: key, key1, key2…"""
    return [row.value for row in rows
            if not row.is_users and row.parent_attribute_id is None
            and re.fullmatch(rf'{key}\d*', row.key)]
