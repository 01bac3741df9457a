# SPDX-License-Identifier: Apache-2.0
"""Tasks of hosts in SQL: those that are open, and the record of those that ended."""

import datetime
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import attributes, clock, devices, models, paging
from cyborg.objects import Decision, TaskKind, TaskState

Task = models.Task
Handle = models.AttachHandle
Deployable = models.Deployable
Device = models.Device

#: the number of failed attempts -> the seconds to wait before the next one
Pause = Callable[[int], float]
PRUNED_AT_ONCE = 1000
REGION_TYPE = 'region_type_uuid'
#: kinds that give a handle back after its request has released it
HAND_BACK = (TaskKind.RELEASE, TaskKind.CLEAN)

_TABLE = models.table(Task)
_ADD = sa.insert(_TABLE)
_REMOVE = sa.delete(_TABLE).where(_TABLE.c.uuid.in_(models.any_of('uuids')))
_IS_OPEN = Task.state == TaskState.OPEN
_EARLIER, _LOADING = orm.aliased(Task), orm.aliased(Task)
_CLEANED, _REGION = orm.aliased(Deployable), orm.aliased(Deployable)
#: the release of the same handle waits for a retry
_IS_RELEASED_AGAIN = (
    sa.select(_EARLIER.id)
    .where(
        _EARLIER.handle_uuid == Task.handle_uuid,
        _EARLIER.state == TaskState.OPEN,
        _EARLIER.kind == TaskKind.RELEASE,
        _EARLIER.attempts > 0,
    )
    .exists()
)
#: an image is to be loaded into the same deployable, or into the region above it
_IS_LOADED_BEFORE = (
    sa.select(_LOADING.id)
    .join(_REGION, _REGION.uuid == _LOADING.deployable_uuid)
    .outerjoin(_CLEANED, _CLEANED.parent_id == _REGION.id)
    .where(
        _LOADING.hostname == Task.hostname,
        _LOADING.state == TaskState.OPEN,
        _LOADING.kind == TaskKind.PROGRAM,
        sa.or_(_REGION.uuid == Task.deployable_uuid, _CLEANED.uuid == Task.deployable_uuid),
    )
    .exists()
)
_UNDECIDED = orm.aliased(Task)
#: (not correlated: SQLite would search all records of its device for each record)
_UNDECIDED_DEVICES = sa.select(_UNDECIDED.device_uuid).where(
    _UNDECIDED.state == TaskState.QUARANTINED
)
#: tasks that a host can perform now: a missing handle cannot be prepared. A handle is prepared and
#: cleaned after the images of its region: one that is loaded later would lack the preparation, or
#: stay in the region. It is cleaned after its release.
_CAN_BE_DONE = sa.and_(
    sa.or_(
        Task.kind != TaskKind.PREPARE,
        sa.and_(Handle.is_missing.is_(False), sa.not_(_IS_LOADED_BEFORE)),
    ),
    sa.or_(
        Task.kind != TaskKind.CLEAN,
        sa.and_(sa.not_(_IS_RELEASED_AGAIN), sa.not_(_IS_LOADED_BEFORE)),
    ),
)


@dataclass(frozen=True)
class Open:
    """The fields of an open task that inventories and binds need."""

    kind: str
    deployable_uuid: str
    handle_uuid: str | None
    arq_uuid: str | None
    attempts: int


def add(session: orm.Session, rows: Sequence[Task], state: TaskState) -> None:
    """Store new tasks in this state, in one statement."""
    now, names = clock.now(), [column.name for column in _TABLE.columns if column.name != 'id']
    for row in rows:
        row.uuid = row.uuid or uuidutils.generate_uuid()
        row.state, row.attempts, row.created_at = state, 0, now
        row.generation = row.generation or 0
    session.execute(_ADD, [{name: getattr(row, name) for name in names} for row in rows])


def remove(session: orm.Session, uuids: Collection[str]) -> None:
    """Delete tasks of which no record is kept."""
    if uuids:
        session.execute(_REMOVE, {'uuids': list(uuids)})


def remove_prepares(session: orm.Session, arq_uuids: Collection[str]) -> None:
    """Delete the prepare tasks of requests."""
    session.execute(
        sa.delete(Task).where(
            Task.arq_uuid.in_(arq_uuids), Task.kind == TaskKind.PREPARE, _IS_OPEN
        ),
        execution_options={'synchronize_session': False},
    )


def get(session: orm.Session, uuids: Collection[str]) -> list[Task]:
    """Returns the open ones of these tasks, locked."""
    return list(
        session.scalars(
            sa.select(Task)
            .where(Task.uuid.in_(uuids), _IS_OPEN)
            .order_by(Task.id)
            .with_for_update()
            .execution_options(populate_existing=True)
        )
    )


def open_one(session: orm.Session, hostname: str, uuid: str) -> Task | None:
    """Returns a task of a host if it is open, not locked."""
    return session.scalar(
        sa.select(Task).where(Task.uuid == uuid, Task.hostname == hostname, _IS_OPEN)
    )


def one(session: orm.Session, uuid: str) -> Task | None:
    """Returns a task, open or finished, not locked."""
    return session.scalar(sa.select(Task).where(Task.uuid == uuid))


def requests_of(session: orm.Session, uuids: Collection[str]) -> set[str]:
    """Returns the requests of these tasks."""
    return {
        uuid
        for uuid in session.scalars(
            sa.select(Task.arq_uuid).distinct().where(Task.uuid.in_(uuids), _IS_OPEN)
        )
        if uuid
    }


def of_handles(session: orm.Session, uuids: Collection[str], *kinds: TaskKind) -> list[Task]:
    """Returns the open tasks of handles."""
    return list(
        session.scalars(
            sa.select(Task)
            .where(Task.handle_uuid.in_(uuids), _IS_OPEN, Task.kind.in_(kinds))
            .order_by(Task.id)
            .execution_options(populate_existing=True)
        )
    )


def programming_of(session: orm.Session, deployable_uuids: Collection[str]) -> list[Task]:
    """Returns the open tasks that load an image into these deployables."""
    return list(
        session.scalars(
            sa.select(Task)
            .where(
                Task.deployable_uuid.in_(deployable_uuids), _IS_OPEN, Task.kind == TaskKind.PROGRAM
            )
            .order_by(Task.id)
        )
    )


def is_clean_up_due(session: orm.Session, deployable_ids: Collection[int]) -> bool:
    """Returns whether these deployables, a region and its functions, are not clean: their host has
    yet to clean them, or an operator to decide about their last clean-up, which has failed."""
    return _are_being_cleaned(session, deployable_ids) or _is_clean_up_undecided(
        session, deployable_ids
    )


def _are_being_cleaned(session: orm.Session, deployable_ids: Collection[int]) -> bool:
    """Returns whether a release or clean task is open for a handle of these deployables."""
    return (
        session.scalar(
            sa.select(Task.id)
            .join(Deployable, Deployable.uuid == Task.deployable_uuid)
            .where(Deployable.id.in_(deployable_ids), _IS_OPEN, Task.kind.in_(HAND_BACK))
            .limit(1)
        )
        is not None
    )


def _is_clean_up_undecided(session: orm.Session, deployable_ids: Collection[int]) -> bool:
    """Returns whether the last clean-up of these deployables as a whole has failed, and no operator
    has decided about it yet."""

    def last(is_such: sa.ColumnElement[bool]) -> sa.ColumnElement[datetime.datetime | None]:
        return sa.func.max(sa.case((is_such, Task.finished_at)))

    failed, done = session.execute(
        sa.select(last(Task.state == TaskState.QUARANTINED), last(Task.state == TaskState.DONE))
        .join(Deployable, Deployable.uuid == Task.deployable_uuid)
        .where(
            Deployable.id.in_(deployable_ids),
            Task.kind == TaskKind.CLEAN,
            Task.is_alone.is_(True),
        )
    ).one()
    return failed is not None and (done is None or done < failed)


def unfinished(
    session: orm.Session, arq_uuids: Collection[str], deployable_uuids: Collection[str]
) -> list[Open]:
    """Returns the open tasks of requests, and those that program their deployables."""
    return _summary(
        session,
        sa.or_(
            sa.and_(Task.arq_uuid.in_(arq_uuids), Task.kind == TaskKind.PREPARE),
            sa.and_(Task.deployable_uuid.in_(deployable_uuids), Task.kind == TaskKind.PROGRAM),
        ),
    )


def last_error(session: orm.Session, arq_uuids: Collection[str]) -> str | None:
    """Returns the error of the latest open task of requests."""
    return session.scalar(
        sa.select(Task.error)
        .where(
            Task.arq_uuid.in_(arq_uuids),
            Task.kind.in_((TaskKind.PREPARE, TaskKind.PROGRAM)),
            _IS_OPEN,
            Task.error.is_not(None),
        )
        .order_by(Task.id.desc())
        .limit(1)
    )


def of_host(session: orm.Session, hostname: str) -> list[Open]:
    """Returns the open tasks of a host, in short."""
    return _summary(session, Task.hostname == hostname)


def _summary(session: orm.Session, where: sa.ColumnElement[bool]) -> list[Open]:
    rows = session.execute(
        sa.select(
            Task.kind, Task.deployable_uuid, Task.handle_uuid, Task.arq_uuid, Task.attempts
        ).where(where, _IS_OPEN)
    )
    return [Open(*row) for row in rows]


def pending(session: orm.Session, hostname: str, pause: Pause) -> list[objects.Task]:
    """Returns the tasks that a host must perform now, in order."""
    return _described(session, Task.hostname == hostname, pause)


def describe(session: orm.Session, uuids: Collection[str], pause: Pause) -> list[objects.Task]:
    """Returns these tasks as objects for their host."""
    return _described(session, Task.uuid.in_(uuids), pause) if uuids else []


def _described(
    session: orm.Session, where: sa.ColumnElement[bool], pause: Pause
) -> list[objects.Task]:
    rows = session.execute(
        sa.select(Task, Deployable, Device, Handle, models.ExtArq.group)
        .join(Deployable, Deployable.uuid == Task.deployable_uuid)
        .join(Deployable.device)
        .outerjoin(Handle, Handle.uuid == Task.handle_uuid)
        .outerjoin(models.ExtArq, models.ExtArq.uuid == Task.arq_uuid)
        .where(where, _IS_OPEN, _CAN_BE_DONE)
        .order_by(Task.id)
        .execution_options(populate_existing=True)
    ).all()
    return [
        show(task, part, device, handle, group, delay=pause(task.attempts))
        for task, part, device, handle, group in rows
    ]


def show(
    task: Task,
    part: Deployable,
    device: Device,
    handle: Handle | None,
    group: dict[str, str] | None = None,
    *,
    delay: float,
) -> objects.Task:
    """Returns a task as an object for its host."""
    return objects.Task(
        uuid=task.uuid,
        kind=task.kind,
        generation=task.generation,
        driver_name=device.driver_name,
        device_key=device.key,
        deployable_name=part.name,
        deployable_uuid=part.uuid,
        handle=None if handle is None else objects.AttachHandle.of(handle),
        arq_uuid=task.arq_uuid,
        instance_uuid=task.instance_uuid,
        project_id=task.project_id,
        group=group or {},
        delay=delay,
        **_image(task, part, device),
        cleaning=task.cleaning,
        is_cleaning_required=task.is_cleaning_required,
        is_alone=task.is_alone is not False,
        request_id=task.request_id,
    )


def _image(task: Task, part: Deployable, device: Device) -> dict[str, Any]:
    """Returns the facts that a host needs to choose and load an image."""
    if task.kind != TaskKind.PROGRAM:
        return {}
    boards = [device.model, device.std_board_info.get('product_id')]
    return {
        'image': task.image or {},
        # one that may be lost is loaded again
        'loaded_image': None if part.may_have_lost_image else part.bitstream_id,
        'vendor': device.vendor,
        'boards': [board for board in boards if board],
        'region_types': attributes.values(part.attributes, REGION_TYPE),
    }


def note_failure(task: Task, error: str, due_at: datetime.datetime) -> None:
    """Record a failed attempt, and when the next one is due."""
    task.attempts += 1
    task.error, task.due_at = error, due_at


def close(task: Task, state: TaskState, result: objects.TaskResult | None = None) -> None:
    """Close a task; its row stays as a record."""
    task.state, task.finished_at, task.due_at = state, clock.now(), None
    if result is not None:
        task.error, task.seconds = result.error, result.seconds
        task.image_uuid = result.image_uuid or task.image_uuid
        task.steps = [
            {'name': step.name, 'seconds': step.seconds, 'error': step.error}
            for step in result.steps
        ] or None
        task.versions = result.versions or None


def note_progress(session: orm.Session, hostname: str, uuid: str, progress: str) -> None:
    """Store the progress of a task."""
    session.execute(
        sa.update(Task)
        .where(Task.uuid == uuid, Task.hostname == hostname, _IS_OPEN)
        .values(progress=progress),
        execution_options={'synchronize_session': False},
    )


def owing_hosts(
    session: orm.Session, since: datetime.datetime, silent_since: datetime.datetime
) -> list[str]:
    """Returns hosts with a live agent and a task whose message must have been lost."""
    return list(
        session.scalars(
            sa.select(Task.hostname)
            .distinct()
            .join(models.Agent, models.Agent.hostname == Task.hostname)
            .outerjoin(Handle, Handle.uuid == Task.handle_uuid)
            .where(
                _IS_OPEN,
                Task.created_at < since,
                _CAN_BE_DONE,
                sa.or_(Task.due_at.is_(None), Task.due_at < since),
                models.Agent.last_heartbeat >= silent_since,
            )
        )
    )


def quarantined(session: orm.Session, handle_uuid: str) -> Task | None:
    """Returns the failed clean task of a quarantined handle, locked."""
    return session.scalar(
        sa.select(Task)
        .where(Task.handle_uuid == handle_uuid, Task.state == TaskState.QUARANTINED)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def last_clean(session: orm.Session, handle_uuid: str) -> Task | None:
    """Returns the last clean task of a handle, open or closed."""
    return session.scalar(
        sa.select(Task)
        .where(Task.handle_uuid == handle_uuid, Task.kind == TaskKind.CLEAN)
        .order_by(Task.id.desc())
        .limit(1)
        .execution_options(populate_existing=True)
    )


def note_decision(
    task: Task, state: TaskState, decision: Decision, actor: str, reason: str | None = None
) -> None:
    """Record an operator's decision about a failed clean task, and the state that follows."""
    task.state = state
    task.decision, task.decided_by, task.decision_reason = decision, actor, reason
    task.decided_at = clock.now()


def end_all(
    session: orm.Session, hostname: str, before: Collection[TaskState], after: TaskState
) -> None:
    """End the tasks of a host that are in one of the states ``before``."""
    session.execute(
        sa.update(Task)
        .where(Task.hostname == hostname, Task.state.in_(before))
        .values(state=after, finished_at=clock.now()),
        execution_options={'synchronize_session': False},
    )


def prune(session: orm.Session, before: datetime.datetime) -> None:
    """Delete some old records. Those of a device with a failed clean-up about which no operator has
    decided stay: they tell whether its regions were cleaned since."""
    ids = session.scalars(
        sa.select(Task.id)
        .where(
            Task.finished_at < before,
            Task.device_uuid.not_in(_UNDECIDED_DEVICES),
            sa.or_(Task.decided_at.is_(None), Task.decided_at < before),
        )
        .order_by(Task.finished_at)
        .limit(PRUNED_AT_ONCE)
    ).all()
    if ids:
        session.execute(sa.delete(Task).where(Task.id.in_(ids)))


# -- hand-backs, as they are shown -------------------------------------------------------------


FILTERS = {
    name: getattr(Task, name)
    for name in ('handle_uuid', 'arq_uuid', 'instance_uuid', 'project_id', 'state')
}
#: the fields of a hand-back that the API shows
_SHOWN: list[Any] = [
    Task,
    Device.driver_name,
    Handle.type.label('handle_type'),
    Handle.info.label('handle_info'),
]
_HAND_BACKS = (
    sa.select(*_SHOWN)
    .outerjoin(Device, Device.uuid == Task.device_uuid)
    .outerjoin(Handle, Handle.uuid == Task.handle_uuid)
    .where(Task.kind.in_(HAND_BACK))
)


def hand_backs(
    session: orm.Session, device_uuid: str, filters: paging.Filters, page: paging.Page
) -> list[objects.HandBack]:
    """Returns one page of the hand-backs of a device. Raises DeviceNotFound if neither the device
    nor a record of it exists."""
    query = _HAND_BACKS.where(Task.device_uuid == device_uuid)
    found = session.execute(paging.page_of(session, query, Task, FILTERS, filters, page)).all()
    if not found and not _has_hand_backs(session, device_uuid):
        devices.get(session, device_uuid)
    return [_hand_back(row) for row in found]


def hand_back(session: orm.Session, uuid: str) -> objects.HandBack:
    """Returns one hand-back."""
    return _hand_back(session.execute(_HAND_BACKS.where(Task.uuid == uuid)).one())


def _has_hand_backs(session: orm.Session, device_uuid: str) -> bool:
    query = sa.select(Task.id).where(Task.device_uuid == device_uuid, Task.kind.in_(HAND_BACK))
    return session.scalar(query.limit(1)) is not None


def _hand_back(row: Any) -> objects.HandBack:
    task = row.Task
    return objects.HandBack.of(
        task,
        driver_name=row.driver_name,
        handle_type=row.handle_type,
        handle_info=row.handle_info or {},
        steps=[objects.Step(**step) for step in task.steps or ()],
        versions=task.versions or {},
    )
