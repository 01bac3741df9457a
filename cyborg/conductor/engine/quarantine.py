# SPDX-License-Identifier: Apache-2.0
"""Quarantine: handles that could not be cleaned, and what an operator decides about them."""

from cyborg import errors
from cyborg.conductor.engine import changes, tasks
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import attach_handles, devices, models
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.objects import Decision, TaskKind, TaskState, Withheld

Handle = models.AttachHandle
Task = models.Task

#: columns that the new task has from the clean-up that failed
_REPEATED = (
    'kind',
    'hostname',
    'device_uuid',
    'deployable_uuid',
    'handle_uuid',
    'arq_uuid',
    'instance_uuid',
    'project_id',
    'cleaning',
    'is_cleaning_required',
)


def clean_again(unit: UnitOfWork, handle_uuid: str, device_uuid: str | None = None) -> str:
    """Have a host clean a quarantined handle again; returns the uuid of the task. If that is in
    progress already, returns the same task."""
    handle = _handle(unit, handle_uuid, device_uuid)
    failed = tasks_db.quarantined(unit.session, handle_uuid)
    if failed is None:
        for task in tasks_db.of_handles(unit.session, [handle_uuid], TaskKind.CLEAN):
            unit.hosts_to_wake.add(task.hostname)
            return task.uuid
        raise errors.NotQuarantined(uuid=handle_uuid, why=_why_not_quarantined(unit, handle))
    tasks.lock_hosts_of_regions(unit, [handle])
    tasks_db.note_decision(failed, TaskState.FAILED, Decision.CLEAN, unit.actor)
    task = Task(
        request_id=unit.request_id,
        generation=handle.generation,
        is_alone=handle.deployable_id in tasks.idle_parts(unit, [handle]),
        **{name: getattr(failed, name) for name in _REPEATED},
    )
    tasks.add(unit, [task])
    handle.withheld = Withheld.CLEANING
    unit.hosts_to_wake.add(task.hostname)
    return task.uuid


def release(
    unit: UnitOfWork, handle_uuid: str, reason: str | None = None, device_uuid: str | None = None
) -> str:
    """Offer a handle again without cleaning, as an operator decides; returns the clean-up that
    failed. The same operator may repeat this."""
    handle = _handle(unit, handle_uuid, device_uuid)
    failed = tasks_db.quarantined(unit.session, handle_uuid)
    if failed is None:
        last = tasks_db.last_clean(unit.session, handle_uuid)
        if last is not None and (last.decision, last.decided_by, last.decision_reason) == (
            Decision.RELEASE,
            unit.actor,
            reason,
        ):
            return last.uuid
        raise errors.NotQuarantined(uuid=handle_uuid, why=_why_not_quarantined(unit, handle))
    tasks_db.note_decision(failed, TaskState.FAILED, Decision.RELEASE, unit.actor, reason)
    unit.note(changes.of_task(failed, 'released', reason=reason))
    tasks.note_hand_back(
        unit, failed, f'Handle {handle_uuid} was released by an operator without being cleaned.'
    )
    tasks.give_back(unit, [handle])
    unit.hosts_to_wake.add(failed.hostname)
    return failed.uuid


def why_not_available(unit: UnitOfWork, handle_uuid: str) -> str | None:
    """Returns why a handle that was released cannot be bound, None if it can."""
    handle = _handle(unit, handle_uuid, None)
    if handle.arq is None and handle.withheld is None:
        return None
    return _why_not_quarantined(unit, handle)


def _handle(unit: UnitOfWork, uuid: str, device_uuid: str | None) -> Handle:
    """Returns a handle. Raises HandleNotFound if it is not one of the named device."""
    handle = attach_handles.by_uuid(unit.session, [uuid]).get(uuid)
    if device_uuid is None:
        if handle is None:
            raise errors.NotFound(f'There is no handle {uuid}.')
    elif handle is None or handle.deployable.device.uuid != device_uuid:
        devices.get(unit.session, device_uuid)
        raise errors.HandleNotFound(device=device_uuid, uuid=uuid)
    return handle


def _why_not_quarantined(unit: UnitOfWork, handle: Handle) -> str:
    if handle.arq is not None:
        return f'accelerator request {handle.arq.uuid} holds it.'
    if handle.withheld == Withheld.PROGRAMMING:
        return 'an image is being loaded into its deployable.'
    last = tasks_db.last_clean(unit.session, handle.uuid)
    if last is not None and last.decision == Decision.RELEASE:
        waits = handle.withheld == Withheld.CLEANING
        more = ', and it is offered when all of its region is clean or released' if waits else ''
        return f'{last.decided_by} has released it{more}.'
    if handle.withheld == Withheld.CLEANING:
        return 'its host has not cleaned it yet; wait until that has ended.'
    return 'it is free.'
