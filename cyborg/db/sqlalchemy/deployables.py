# SPDX-License-Identifier: Apache-2.0
"""Deployables in SQL."""

import json

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import attributes, models, paging

Deployable = models.Deployable
PARENT, ROOT = orm.aliased(Deployable), orm.aliased(Deployable)
FILTERS = {
    'uuid': Deployable.uuid,
    'name': Deployable.name,
    'rp_uuid': Deployable.rp_uuid,
    'driver_name': Deployable.driver_name,
    'device_id': Deployable.device_id,
    'device_uuid': models.Device.uuid,
    'hostname': models.Device.hostname,
    'bitstream_id': Deployable.bitstream_id,
    'parent_id': Deployable.parent_id,
    'parent_uuid': PARENT.uuid,
    'root_id': Deployable.root_id,
    'root_uuid': ROOT.uuid,
}
TASK, FAILED = models.Task, orm.aliased(models.Task)
_IS_OPEN = TASK.state == objects.TaskState.OPEN
#: named as the fields of objects.Deployable
ALL = (
    sa.select(
        *(
            getattr(Deployable, name)
            for name in objects.Deployable.fields
            if name in models.table(Deployable).columns
        ),
        sa.func.coalesce(_IS_OPEN, sa.false()).label('is_programming'),
        sa.case((_IS_OPEN, TASK.image_uuid)).label('program_image'),
        sa.case((_IS_OPEN, TASK.progress)).label('program_progress'),
        TASK.error.label('program_error'),
        sa.select(sa.func.max(FAILED.error))
        .where(
            FAILED.deployable_uuid == Deployable.uuid, FAILED.state == objects.TaskState.QUARANTINED
        )
        .correlate(Deployable)
        .scalar_subquery()
        .label('quarantine_reason'),
        models.Device.uuid.label('device_uuid'),
        PARENT.uuid.label('parent_uuid'),
        PARENT.name.label('parent_name'),
        ROOT.uuid.label('root_uuid'),
    )
    .join(models.Device, Deployable.device_id == models.Device.id)
    .outerjoin(TASK, Deployable.program_task_uuid == TASK.uuid)
    .outerjoin(PARENT, Deployable.parent_id == PARENT.id)
    .outerjoin(ROOT, Deployable.root_id == ROOT.id)
)


def find(
    session: orm.Session, filters: paging.Filters, page: paging.Page
) -> list[objects.Deployable]:
    """Returns one page of the deployables that match, with their topmost attributes as a JSON list,
    and without their handles."""
    query = paging.page_of(session, ALL, Deployable, FILTERS, filters, page)
    found = session.execute(query).all()
    facts = attributes.of_deployables(session, [row.id for row in found])
    return [
        objects.Deployable.of(
            row,
            attribute_list=json.dumps([{fact.key: fact.value} for fact in facts[row.id]]),
        )
        for row in found
    ]


def get(session: orm.Session, uuid: str) -> objects.Deployable:
    """Returns one deployable, with its attributes."""
    found = find(session, {'uuid': uuid}, {})
    if not found:
        raise errors.DeployableNotFound(uuid=uuid)
    return found[0]


def row(session: orm.Session, uuid: str) -> Deployable | None:
    """Returns one row, not locked."""
    return session.scalar(sa.select(Deployable).where(Deployable.uuid == uuid))


def locked(session: orm.Session, uuid: str) -> Deployable | None:
    """Returns one row, locked."""
    return session.scalar(_LOCKED.where(Deployable.uuid == uuid))


def lock(session: orm.Session, row: Deployable) -> None:
    """Lock one row without reading it again."""
    session.execute(sa.select(Deployable.id).where(Deployable.id == row.id).with_for_update())


def locked_provider(session: orm.Session, rp_uuid: str) -> Deployable:
    """Returns the row of a known resource provider, locked."""
    return session.scalars(_LOCKED.where(Deployable.rp_uuid == rp_uuid)).one()


_LOCKED = (
    sa.select(Deployable)
    .with_for_update()
    .options(orm.selectinload(Deployable.attributes), orm.selectinload(Deployable.device))
    .execution_options(populate_existing=True)
)


def at_and_below(session: orm.Session, row: Deployable) -> set[int]:
    """Returns the ids of a deployable and of all deployables below it."""
    parts = session.execute(
        sa.select(Deployable.id, Deployable.parent_id).where(Deployable.device_id == row.device_id)
    ).all()
    found = {row.id}
    while below := {part.id for part in parts if part.parent_id in found} - found:
        found |= below
    return found


def providers_of(session: orm.Session, hostname: str) -> set[str]:
    """Returns the uuids of a host's resource providers."""
    return set(
        session.scalars(
            sa.select(Deployable.rp_uuid)
            .join(Deployable.device)
            .where(models.Device.hostname == hostname)
        )
    )
