# SPDX-License-Identifier: Apache-2.0
"""Tasks of hosts in SQL: those that are open, and the record of those that ended."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import attributes, models, paging
from cyborg.objects import TaskKind, TaskState

Task, Handle, Deployable, Device = (
    models.Task, models.AttachHandle, models.Deployable, models.Device)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 300.0  #: seconds between two tries of a host
PRUNED_AT_ONCE = 1000
REGION_TYPE = 'region_type_uuid'
#: what gives a handle back after a request has let go of it
HAND_BACK = (TaskKind.RELEASE, TaskKind.CLEAN)

_TABLE = Task.__table__
_ADD = sa.insert(_TABLE)
_REMOVE = sa.delete(_TABLE).where(_TABLE.c.uuid.in_(models.any_of('uuids')))
_IS_OPEN = Task.state == TaskState.OPEN
_EARLIER = orm.aliased(Task)
#: a host cannot prepare what is not there, and cleans what it has released
_CAN_BE_DONE = sa.and_(
    sa.or_(Task.kind != TaskKind.PREPARE, Handle.is_missing.is_(False)),
    sa.or_(Task.kind != TaskKind.CLEAN, sa.not_(sa.select(_EARLIER.id).where(
        _EARLIER.handle_uuid == Task.handle_uuid, _EARLIER.state == TaskState.OPEN,
        _EARLIER.kind == TaskKind.RELEASE, _EARLIER.attempts > 0).exists())))


@dataclass(frozen=True)
class Open:
    """An open task, as far as others look at it."""

    kind: str
    deployable_uuid: str
    handle_uuid: str | None
    arq_uuid: str | None
    attempts: int


def add(session: orm.Session, rows: Sequence[Task]) -> None:
    """Store new tasks in one statement."""
    now, names = models.now(), [column.name for column in _TABLE.columns if column.name != 'id']
    for row in rows:
        row.uuid = row.uuid or uuidutils.generate_uuid()
        row.state, row.attempts, row.created_at = TaskState.OPEN, 0, now
        row.generation = row.generation or 0
    session.execute(_ADD, [{name: getattr(row, name) for name in names} for row in rows])


def remove(session: orm.Session, uuids: Collection[str]) -> None:
    """Drop tasks of which no record is kept."""
    if uuids:
        session.execute(_REMOVE, {'uuids': list(uuids)})


def remove_prepares(session: orm.Session, arq_uuids: Collection[str]) -> None:
    """Requests no longer need what hosts prepare for them."""
    session.execute(
        sa.delete(Task).where(Task.arq_uuid.in_(arq_uuids), Task.kind == TaskKind.PREPARE,
                              _IS_OPEN), execution_options={'synchronize_session': False})


def get(session: orm.Session, uuids: Collection[str]) -> list[Task]:
    """Those of these tasks that are open, as they are now."""
    return list(session.scalars(
        sa.select(Task).where(Task.uuid.in_(uuids), _IS_OPEN).order_by(Task.id)
        .with_for_update().execution_options(populate_existing=True)))


def requests_of(session: orm.Session, uuids: Collection[str]) -> set[str]:
    """The requests for which these tasks are."""
    return {uuid for uuid in session.scalars(
        sa.select(Task.arq_uuid).distinct().where(Task.uuid.in_(uuids), _IS_OPEN)) if uuid}


def of_handles(session: orm.Session, uuids: Collection[str],
               *kinds: TaskKind) -> list[Task]:
    """The open tasks of handles."""
    return list(session.scalars(
        sa.select(Task).where(Task.handle_uuid.in_(uuids), _IS_OPEN, Task.kind.in_(kinds))
        .order_by(Task.id).execution_options(populate_existing=True)))


def programming_of(session: orm.Session, deployable_uuids: Collection[str]) -> list[Task]:
    """The open tasks that load an image into these deployables."""
    return list(session.scalars(
        sa.select(Task).where(Task.deployable_uuid.in_(deployable_uuids), _IS_OPEN,
                              Task.kind == TaskKind.PROGRAM).order_by(Task.id)))


def is_being_cleaned(session: orm.Session, deployable_uuid: str) -> bool:
    """Has a host still to release or to clean a part of a deployable?"""
    return session.scalar(sa.select(Task.id).where(
        Task.deployable_uuid == deployable_uuid, _IS_OPEN, Task.kind.in_(HAND_BACK)).limit(1)
    ) is not None


def unfinished(session: orm.Session, arq_uuids: Collection[str],
               deployable_uuids: Collection[str]) -> list[Open]:
    """What is still to be done for requests, or to the deployables of which they hold a part."""
    return _summary(session, sa.or_(
        sa.and_(Task.arq_uuid.in_(arq_uuids), Task.kind == TaskKind.PREPARE),
        sa.and_(Task.deployable_uuid.in_(deployable_uuids), Task.kind == TaskKind.PROGRAM)))


def of_host(session: orm.Session, hostname: str) -> list[Open]:
    """A summary of all that a host has to do, or could not clean."""
    return _summary(session, Task.hostname == hostname)


def _summary(session: orm.Session, where: sa.ColumnElement[bool]) -> list[Open]:
    rows = session.execute(
        sa.select(Task.kind, Task.deployable_uuid, Task.handle_uuid, Task.arq_uuid, Task.attempts)
        .where(where, _IS_OPEN))
    return [Open(*row) for row in rows]


def pending(session: orm.Session, hostname: str) -> list[objects.Task]:
    """All that a host has to do now, in the order in which it became due."""
    return _described(session, Task.hostname == hostname)


def describe(session: orm.Session, uuids: Collection[str]) -> list[objects.Task]:
    """These tasks as their host is told of them."""
    return _described(session, Task.uuid.in_(uuids)) if uuids else []


def _described(session: orm.Session, where: sa.ColumnElement[bool]) -> list[objects.Task]:
    rows = session.execute(
        sa.select(Task, Deployable, Device, Handle, models.ExtArq.group)
        .join(Deployable, Deployable.uuid == Task.deployable_uuid).join(Deployable.device)
        .outerjoin(Handle, Handle.uuid == Task.handle_uuid)
        .outerjoin(models.ExtArq, models.ExtArq.uuid == Task.arq_uuid)
        .where(where, _IS_OPEN, _CAN_BE_DONE).order_by(Task.id)
        .execution_options(populate_existing=True)).all()
    return [show(task, part, device, handle, group) for task, part, device, handle, group in rows]


def show(task: Task, part: Deployable, device: Device, handle: Handle | None,
         group: dict[str, str] | None = None) -> objects.Task:
    """A task as its host is told of it."""
    return objects.Task(
        uuid=task.uuid, kind=task.kind, generation=task.generation,
        driver_name=device.driver_name, device_key=device.key, deployable_name=part.name,
        deployable_uuid=part.uuid,
        handle=None if handle is None else objects.AttachHandle.of(handle),
        arq_uuid=task.arq_uuid, instance_uuid=task.instance_uuid, project_id=task.project_id,
        group=group or {}, delay=pause(task.attempts), **_image(task, part, device),
        cleaning=task.cleaning, is_cleaning_required=task.is_cleaning_required,
        is_alone=task.is_alone is not False, request_id=task.request_id)


def _image(task: Task, part: Deployable, device: Device) -> dict[str, Any]:
    """What a host has to know to choose and load an image."""
    if task.kind != TaskKind.PROGRAM:
        return {}
    boards = [device.model, device.std_board_info.get('product_id')]
    return {'image': task.image or {}, 'loaded_image': part.bitstream_id,
            'vendor': device.vendor, 'boards': [board for board in boards if board],
            'region_types': attributes.values(part.attributes, REGION_TYPE)}


def pause(attempts: int) -> float:
    """Seconds between a failure and the next try."""
    return min(FIRST_PAUSE * 2 ** min(attempts - 1, 16), LONGEST_PAUSE) if attempts else 0.0


def note_failure(task: Task, error: str) -> None:
    """The host failed, and tries again, later each time."""
    task.attempts += 1
    task.error = error
    task.due_at = models.now() + datetime.timedelta(seconds=pause(task.attempts))


def close(task: Task, state: TaskState, result: objects.TaskResult | None = None) -> None:
    """Make a record of a task that has ended."""
    task.state, task.finished_at, task.due_at = state, models.now(), None
    if result is not None:
        task.error, task.seconds = result.error, result.seconds
        task.image_uuid = result.image_uuid or task.image_uuid
        task.steps = [{'name': step.name, 'seconds': step.seconds, 'error': step.error}
                      for step in result.steps] or None
        task.versions = result.versions or None


def note_progress(session: orm.Session, hostname: str, uuid: str, progress: str) -> None:
    """Keep how far a host has got with a task."""
    session.execute(
        sa.update(Task).where(Task.uuid == uuid, Task.hostname == hostname, _IS_OPEN)
        .values(progress=progress), execution_options={'synchronize_session': False})


def owing_hosts(session: orm.Session, since: datetime.datetime,
                silent_since: datetime.datetime) -> list[str]:
    """Hosts whose agent lives and has had a task for so long that a message was lost."""
    return list(session.scalars(
        sa.select(Task.hostname).distinct()
        .join(models.Agent, models.Agent.hostname == Task.hostname)
        .outerjoin(Handle, Handle.uuid == Task.handle_uuid)
        .where(_IS_OPEN, Task.created_at < since, _CAN_BE_DONE,
               sa.or_(Task.due_at.is_(None), Task.due_at < since),
               models.Agent.last_heartbeat >= silent_since)))


def quarantined(session: orm.Session, handle_uuid: str) -> Task | None:
    """The clean-up of a handle that failed, ours until we are done."""
    return session.scalar(
        sa.select(Task).where(Task.handle_uuid == handle_uuid,
                              Task.state == TaskState.QUARANTINED)
        .with_for_update().execution_options(populate_existing=True))


def forget_host(session: orm.Session, hostname: str) -> None:
    """Nobody is there to do what is open."""
    session.execute(
        sa.update(Task).where(Task.hostname == hostname,
                              Task.state.in_((TaskState.OPEN, TaskState.QUARANTINED)))
        .values(state=TaskState.CANCELLED, finished_at=models.now()),
        execution_options={'synchronize_session': False})


def prune(session: orm.Session, before: datetime.datetime) -> None:
    """Forget old records, some at a time."""
    ids = session.scalars(
        sa.select(Task.id).where(Task.finished_at < before, Task.state != TaskState.QUARANTINED)
        .order_by(Task.finished_at).limit(PRUNED_AT_ONCE)).all()
    if ids:
        session.execute(sa.delete(Task).where(Task.id.in_(ids)))


# -- hand-backs, as they are shown -------------------------------------------------------------


FILTERS = {'uuid': Task.uuid, 'device_uuid': Task.device_uuid, 'hostname': Task.hostname,
           'handle_uuid': Task.handle_uuid, 'arq_uuid': Task.arq_uuid, 'state': Task.state}


def hand_backs(session: orm.Session, filters: paging.Filters,
               page: paging.Page) -> list[objects.HandBack]:
    """How handles were given back, a page of them."""
    query = sa.select(Task).where(Task.kind.in_(HAND_BACK))
    query = paging.page_of(session, query, Task, FILTERS, filters, page)
    return [objects.HandBack.of(row, steps=[objects.Step(**step) for step in row.steps or ()],
                                versions=row.versions or {})
            for row in session.scalars(query)]
