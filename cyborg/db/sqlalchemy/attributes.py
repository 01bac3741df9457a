# SPDX-License-Identifier: Apache-2.0
"""Attributes in SQL: facts about deployables that drivers report or administrators add.

Clients of the API find the resource class, the traits and the reserved count of a deployable among
its attributes (``rc``, ``trait0``…, ``reserved``). These rows are only shown: Cyborg itself reads
the columns of the deployable.
"""

import re
import string
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging

Attribute = models.Attribute
Deployable = models.Deployable
PARENT = orm.aliased(Attribute)
SHOWN = (
    Attribute.uuid,
    Attribute.deployable_id,
    Attribute.key,
    Attribute.value,
    Attribute.created_at,
    Attribute.updated_at,
    Deployable.uuid.label('deployable_uuid'),
    PARENT.uuid.label('parent_uuid'),
)
FILTERS = {
    'uuid': Attribute.uuid,
    'deployable_id': Attribute.deployable_id,
    'deployable_uuid': Deployable.uuid,
    'parent_uuid': PARENT.uuid,
    'key': Attribute.key,
    'value': Attribute.value,
}
RESOURCE_CLASS, TRAIT, RESERVED = 'rc', 'trait', 'reserved'
FUNCTION = 'function_uuid'

QUERY = (
    sa.select(*SHOWN)
    .join(Deployable, Attribute.deployable_id == Deployable.id)
    .outerjoin(PARENT, Attribute.parent_attribute_id == PARENT.id)
)
TOP = QUERY.where(Attribute.parent_attribute_id.is_(None))


def find(
    session: orm.Session, filters: paging.Filters, page: paging.Page, nested: bool = False
) -> list[objects.Attribute]:
    """Returns one page of the attributes that match; nested: only the topmost, with children."""
    query = TOP if nested and not {'parent_uuid', 'uuid'} & filters.keys() else QUERY
    query = paging.page_of(session, query, Attribute, FILTERS, filters, page)
    found = [objects.Attribute.of(row) for row in session.execute(query)]
    if nested and found:
        _add_children(session, found)
    return found


def _add_children(session: orm.Session, found: Sequence[objects.Attribute]) -> None:
    """Add their children to attributes."""
    rows = session.execute(
        QUERY.where(
            Attribute.deployable_id.in_({each.deployable_id for each in found}),
            Attribute.parent_attribute_id.is_not(None),
        ).order_by(Attribute.id)
    )
    below = [objects.Attribute.of(row) for row in rows]
    by_uuid = {each.uuid: each for each in (*below, *found)}
    for each in below:
        if each.parent_uuid in by_uuid:
            by_uuid[each.parent_uuid].children.append(each)


def get(session: orm.Session, uuid: str, nested: bool = False) -> objects.Attribute:
    """Returns one attribute."""
    found = find(session, {'uuid': uuid}, {}, nested)
    if not found:
        raise errors.AttributeNotFound(uuid=uuid)
    return found[0]


def create(
    session: orm.Session, deployable: str, key: str, value: str, parent_uuid: str | None = None
) -> objects.Attribute:
    """Add an attribute that reports do not remove to a deployable, by its uuid or number."""
    named = Deployable.uuid == deployable
    if deployable.isdecimal() and len(deployable) < 10:  # fits into an integer of any database
        named = sa.or_(named, Deployable.id == int(deployable))
    owner = session.scalar(sa.select(Deployable).where(named))
    if owner is None:
        raise errors.DeployableNotFound(uuid=deployable)
    row = Attribute(
        deployable_id=owner.id,
        key=key,
        value=value,
        is_users=True,
        parent=_parent(session, owner, parent_uuid),
    )
    session.add(row)
    session.flush()
    return objects.Attribute.of(
        row, deployable_uuid=owner.uuid, parent_uuid=parent_uuid, children=[]
    )


def _parent(session: orm.Session, owner: Deployable, uuid: str | None) -> Attribute | None:
    if uuid is None:
        return None
    # locked, so that it cannot be deleted meanwhile
    row = session.scalar(
        sa.select(Attribute)
        .with_for_update(read=True)
        .where(Attribute.uuid == uuid, Attribute.deployable_id == owner.id)
    )
    if row is None:
        raise errors.AttributeNotFound(uuid=uuid)
    return row


def delete(session: orm.Session, uuid: str) -> None:
    """Delete an attribute and its children. One of a driver returns with its next report."""
    owner = sa.select(Attribute.deployable_id).where(Attribute.uuid == uuid)
    rows = session.execute(
        sa.select(Attribute.id, Attribute.uuid, Attribute.parent_attribute_id)
        .where(Attribute.deployable_id.in_(owner))
        .with_for_update()
    ).all()
    gone = {row.id for row in rows if row.uuid == uuid}
    if not gone:
        raise errors.AttributeNotFound(uuid=uuid)
    while below := {row.id for row in rows if row.parent_attribute_id in gone} - gone:
        gone |= below
    # cut the references first: databases check them row by row
    session.execute(
        sa.update(Attribute).where(Attribute.id.in_(gone)).values(parent_attribute_id=None)
    )
    session.execute(sa.delete(Attribute).where(Attribute.id.in_(gone)))


# -- as parts of a deployable ----------------------------------------------------------------


def told(deployable: objects.Deployable) -> list[objects.Attribute]:
    """Returns the attributes to show for a reported deployable: class, traits and reserved count,
    then those of the driver."""
    named = [(RESOURCE_CLASS, deployable.resource_class)] if deployable.resource_class else []
    named += [(f'{TRAIT}{number}', trait) for number, trait in enumerate(deployable.traits)]
    named += [(RESERVED, str(deployable.reserved))] if deployable.reserved else []
    return [
        *(objects.Attribute(key=key, value=value) for key, value in named),
        *deployable.attributes,
    ]


def update(
    owner: Deployable, wanted: Sequence[objects.Attribute], parent: Attribute | None = None
) -> None:
    """Update the driver's attributes of a deployable, by key."""
    rows = {row.key: row for row in owner.attributes if row.parent is parent and not row.is_users}
    # a key that a driver reports twice must not add a row with each report
    for attribute in {each.key: each for each in wanted}.values():
        row = rows.pop(attribute.key, None)
        if row is None:
            row = Attribute(key=attribute.key, value=attribute.value, parent=parent)
            owner.attributes.append(row)
        elif row.value != attribute.value:
            row.value = attribute.value
        update(owner, attribute.children, row)
    for row in rows.values():
        _drop(owner, row)


def _drop(owner: Deployable, row: Attribute) -> None:
    """Remove an attribute with its children that the driver reports."""
    update(owner, [], row)
    for child in owner.attributes:
        if child.parent is row:  # an administrator has added it, so it stays
            child.parent = row.parent
    owner.attributes.remove(row)


def forget_functions(owner: Deployable, present: Collection[str] = ()) -> None:
    """Remove the attributes of functions of a deployable whose content has changed, and the traits
    that end with their ids. ``present`` are the ids of the functions that it has now."""
    gone = {plain(each) for each in values(owner.attributes, FUNCTION)}
    gone.difference_update(plain(each) for each in present)
    past = {trait for trait in owner.traits if plain(trait).endswith(tuple(gone))}
    owner.traits = [trait for trait in owner.traits if trait not in past]
    for row in list(owner.attributes):
        if row.is_users or row.parent is not None:
            continue
        is_function = is_numbered(row.key, FUNCTION) and plain(row.value) in gone
        if is_function or is_numbered(row.key, TRAIT) and row.value in past:
            _drop(owner, row)


def plain(text: str) -> str:
    """Returns an id in one spelling, also one within a trait."""
    return text.lower().replace('-', '').replace('_', '')


def is_numbered(key: str, name: str) -> bool:
    """Returns whether a key is one of name, name1, name2…"""
    return re.fullmatch(rf'{name}\d*', key) is not None


_TABLE = models.table(Attribute)
_AT_TOP = (
    sa.select(_TABLE.c.deployable_id, _TABLE.c.key, _TABLE.c.value, _TABLE.c.is_users)
    .where(_TABLE.c.deployable_id.in_(models.any_of('ids')), _TABLE.c.parent_attribute_id.is_(None))
    .order_by(_TABLE.c.id)
)


def of_deployables(session: orm.Session, ids: Collection[int]) -> dict[int, list[Any]]:
    """Returns the keys and values of the topmost attributes of deployables, with one query: class,
    traits and reserved count, then the others by key. The rows are in the order in which reports
    and results have arrived."""
    found: dict[int, list[Any]] = {id: [] for id in ids}
    for row in session.execute(_AT_TOP, {'ids': list(ids)}):
        found[row.deployable_id].append(row)
    for rows in found.values():
        rows.sort(key=_position)
    return found


def _position(row: Any) -> tuple[int, str, int]:
    name = row.key.rstrip(string.digits)
    return _FIRST.get(name, len(_FIRST)), name, int(row.key[len(name) :] or 0)


_FIRST = {RESOURCE_CLASS: 0, TRAIT: 1, RESERVED: 2}


def values(rows: Iterable[Attribute], key: str) -> list[str]:
    """Returns the values that a driver reports under key, key1, key2…"""
    return [
        row.value
        for row in rows
        if not row.is_users and row.parent_attribute_id is None and is_numbered(row.key, key)
    ]
