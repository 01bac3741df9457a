# SPDX-License-Identifier: Apache-2.0
"""What hosts are given to do: preparing, programming, releasing and cleaning."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from cyborg import errors, objects
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import attach_handles, attributes, deployables, models, tasks
from cyborg.objects import Cleaning, TaskKind, TaskState, Withheld

Arq, Handle, Deployable, Task = (
    models.ExtArq, models.AttachHandle, models.Deployable, models.Task)

#: keys of a profile's group that name an image
IMAGE_KEYS = ('bitstream_id', 'bitstream_name', 'function_id', 'function_name')
ACCEL = 'accel:'
CLEANING, CLEANING_REQUIRED = 'accel:cleaning', 'accel:cleaning_required'
FUNCTION = 'function_uuid'
#: images that every project may use: those that are looked for, and those that are named by id
OPEN = {False: ('public',), True: ('public', 'community')}


def _task(kind: TaskKind, handle: Handle, arq: Arq | None = None, **values: object) -> Task:
    """A task of a handle whose place is loaded."""
    part, device = handle.deployable, handle.deployable.device
    return Task(
        kind=kind, hostname=device.hostname, device_uuid=device.uuid, deployable_uuid=part.uuid,
        handle_uuid=handle.uuid, generation=handle.generation,
        arq_uuid=arq.uuid if arq else None, instance_uuid=arq.instance_uuid if arq else None,
        project_id=arq.project_id if arq else None, **values)


def _assign(unit: UnitOfWork, task: Task, handle: Handle, arq: Arq | None) -> None:
    """Have the host hear of a task of a handle at once."""
    part = handle.deployable
    unit.assign(task.hostname, tasks.show(task, part, part.device, handle,
                                          arq.group if arq else None))


# -- prepare ---------------------------------------------------------------------------------


def prepare(unit: UnitOfWork, held: Sequence[tuple[Arq, Handle]], *,
            is_told: bool = True) -> None:
    """Have hosts prepare what requests hold. Without ``is_told`` they hear of it in their next
    plan."""
    made = [_task(TaskKind.PREPARE, handle, arq) for arq, handle in held]
    if made:
        tasks.add(unit.session, made)
    for task, (arq, handle) in zip(made, held, strict=True):
        if is_told:
            _assign(unit, task, handle, arq)


# -- hand back -------------------------------------------------------------------------------


def hand_back(unit: UnitOfWork, held: Sequence[tuple[Arq, Handle]]) -> None:
    """Requests let go of their handles. A handle can be taken again at once, or when its host has
    released and cleaned it."""
    after = {handle.uuid: _after(arq, handle) for arq, handle in held}
    being_programmed = _being_programmed(unit, held)
    by_reason: dict[Withheld | None, list[Handle]] = {}
    for _, handle in held:
        why = Withheld.CLEANING if after[handle.uuid] else (
            Withheld.PROGRAMMING if handle.deployable.uuid in being_programmed else None)
        by_reason.setdefault(why, []).append(handle)
    for why, handles in by_reason.items():
        attach_handles.release(unit.session, handles, why)
    alone = _alone(unit, [handle for arq, handle in held if any(
        kind == TaskKind.CLEAN for kind in after[handle.uuid])])
    made = [(_task(kind, handle, arq, **_cleaning(arq, handle, kind, alone)), handle, arq)
            for arq, handle in held for kind in after[handle.uuid]]
    if made:
        tasks.add(unit.session, [task for task, _, _ in made])
    for task, handle, arq in made:
        _assign(unit, task, handle, arq)
    for handle in by_reason.get(None, ()):
        device = handle.deployable.device
        if handle.is_missing or device.fault or device.status != objects.DeviceStatus.ENABLED:
            # others may have waited for it: parts of the same card, or of its IOMMU group
            unit.hosts_to_wake.add(device.hostname)


def _after(arq: Arq, handle: Handle) -> list[TaskKind]:
    """What the host does after a request, in its order."""
    level = arq.group.get(CLEANING) or handle.cleaning
    return [*([TaskKind.RELEASE] if handle.is_host_prepared else []),
            *([TaskKind.CLEAN] if level != Cleaning.NONE else [])]


def _cleaning(arq: Arq, handle: Handle, kind: TaskKind, alone: set[int]) -> dict[str, object]:
    """What a clean-up has to know."""
    if kind != TaskKind.CLEAN:
        return {}
    required = arq.group.get(CLEANING_REQUIRED)
    return {'cleaning': arq.group.get(CLEANING), 'is_alone': handle.deployable_id in alone,
            'is_cleaning_required': None if required is None else required.lower() == 'true'}


def _being_programmed(unit: UnitOfWork, held: Iterable[tuple[Arq, Handle]]) -> set[str]:
    """Deployables of requests that are not Bound yet and into which an image is being loaded."""
    unbound = {handle.deployable.uuid for arq, handle in held
               if handle.deployable.is_programmable and arq.state != objects.State.BOUND}
    return {task.deployable_uuid for task in tasks.programming_of(unit.session, unbound)
            } if unbound else set()


def _alone(unit: UnitOfWork, handles: Sequence[Handle]) -> set[int]:
    """Programmable deployables of which no request holds a part any more. Nobody gets a part of
    them before they are clean: cleaning may take their content away."""
    ids = {handle.deployable_id for handle in handles if handle.deployable.is_programmable}
    if ids:
        ids -= {handle.deployable_id for handle in attach_handles.held_in(unit.session, ids)}
        attach_handles.withhold_parts(unit.session, ids, Withheld.CLEANING)
    return ids | {handle.deployable_id for handle in handles
                  if not handle.deployable.is_programmable}


def release_unwanted(unit: UnitOfWork, handles: Sequence[Handle]) -> None:
    """Have a host release free handles that it prepared, though no request holds them."""
    taken = [handle for handle in handles if attach_handles.withhold_one(
        unit.session, handle, Withheld.CLEANING)]
    made = [_task(TaskKind.RELEASE, handle) for handle in taken]
    if made:
        tasks.add(unit.session, made)


# -- program ---------------------------------------------------------------------------------


def image_of(group: Mapping[str, str]) -> dict[str, str]:
    """The image that a profile's group asks for; empty if it asks for none."""
    return {key: group[f'{ACCEL}{key}'] for key in IMAGE_KEYS if f'{ACCEL}{key}' in group}


def is_loaded(part: Deployable, image: Mapping[str, str], project_id: str | None) -> bool:
    """Does a deployable hold the image already, and may the project use that image? Its attributes
    must be loaded.

    An image of another project that is shared with this one counts as not loaded: only its host
    can ask Glance. A function that is loaded is offered to everybody.
    """
    facts = part.bitstream_facts or {}
    is_usable = (facts.get('visibility') in OPEN[image.keys() == {'bitstream_id'}]
                 or project_id is not None and facts.get('owner') == project_id)
    if not is_usable and image.keys() - {'function_id'}:
        return False
    functions = {_plain(value) for value in attributes.values(part.attributes, FUNCTION)}
    tests = {
        'bitstream_id': lambda wanted: part.bitstream_id == wanted,
        'bitstream_name': lambda wanted: bool(part.bitstream_id) and facts.get('name') == wanted,
        'function_id': lambda wanted: _plain(wanted) in functions,
        'function_name': lambda wanted: (bool(part.bitstream_id)
                                         and facts.get('function_name') == wanted)}
    return all(tests[key](wanted) for key, wanted in image.items())


def _plain(uuid: str) -> str:
    return uuid.lower().replace('-', '')


def program(unit: UnitOfWork, part: Deployable, image: Mapping[str, str],
            arq: Arq | None = None, holders: Collection[int] = ()) -> Task:
    """Have a host load an image into a deployable; CannotProgram if that must not be.

    ``holders``: the requests, by row, that hold parts of it and wait for the image.
    """
    if why := _refusal(part):
        raise errors.CannotProgram(uuid=part.uuid, why=why)
    _withhold_free_parts(unit, part, holders)
    task = Task(
        kind=TaskKind.PROGRAM, hostname=part.device.hostname, device_uuid=part.device.uuid,
        deployable_uuid=part.uuid, image=dict(image), image_uuid=image.get('bitstream_id'),
        arq_uuid=arq.uuid if arq else None, instance_uuid=arq.instance_uuid if arq else None,
        project_id=arq.project_id if arq else None, request_id=unit.request_id)
    tasks.add(unit.session, [task])
    part.program_task_uuid = task.uuid
    # not by a message of its own: the host looks anew, and finds the task in its plan
    unit.hosts_to_wake.add(part.device.hostname)
    return task


def _refusal(part: Deployable) -> str | None:
    if part.device.is_missing:
        return 'its device is gone from the host.'
    if part.device.status != objects.DeviceStatus.ENABLED:
        return 'its device is disabled; enable it first.'
    if not part.is_programmable:
        return f'driver {part.device.driver_name} cannot load images into it.'
    return None


def _withhold_free_parts(unit: UnitOfWork, part: Deployable, holders: Collection[int]) -> None:
    """Have all handles at and below a deployable for the programming, or raise CannotProgram."""
    ids = deployables.at_and_below(unit.session, part)
    taken = attach_handles.withhold_parts(unit.session, ids, Withheld.PROGRAMMING)
    handles = attach_handles.use_of(unit.session, ids)
    if taken + sum(handle.arq_id in holders for handle, _ in handles) != len(handles):
        others = (_use(handle, arq) for handle, arq in handles if handle.arq_id not in holders)
        raise errors.CannotProgram(
            uuid=part.uuid,
            why=next(filter(None, others), 'what it is a part of is being programmed.'))


def _use(handle: Handle, arq: str | None) -> str | None:
    """Why a handle is not free, unless it is withheld for this programming."""
    if arq is not None:
        return f'accelerator request {arq} has a part of it; unbind that first.'
    if handle.withheld == Withheld.CLEANING:
        return 'its host has not cleaned up yet after the request that had it last.'
    if handle.withheld == Withheld.QUARANTINED:
        return 'a part of it is quarantined, since it could not be cleaned.'
    if handle.is_missing:
        return 'a part of it is gone, or used by somebody who never asked for it here.'
    return None


def program_for_operator(unit: UnitOfWork, uuid: str, image_uuid: str) -> None:
    """Have a host load an image; the same one again joins what is under way."""
    part = deployables.locked(unit.session, uuid)
    if part is None:
        raise errors.DeployableNotFound(uuid=uuid)
    for task in tasks.programming_of(unit.session, [part.uuid]):
        if task.image_uuid != image_uuid:
            raise errors.CannotProgram(
                uuid=uuid, why=f'image {task.image_uuid or "of another request"} is being loaded '
                               'into it; wait until that has ended.')
        unit.hosts_to_wake.add(part.device.hostname)
        return
    program(unit, part, {'bitstream_id': image_uuid})


# -- quarantine ------------------------------------------------------------------------------


def _quarantined(unit: UnitOfWork, handle_uuid: str) -> tuple[Handle, Task]:
    handle = attach_handles.by_uuid(unit.session, [handle_uuid]).get(handle_uuid)
    task = tasks.quarantined(unit.session, handle_uuid)
    if handle is None or task is None:
        raise errors.NotFound(f'There is no quarantined handle {handle_uuid}.')
    return handle, task


def clean_again(unit: UnitOfWork, handle_uuid: str) -> None:
    """An operator has a host try once more to clean a handle."""
    handle, task = _quarantined(unit, handle_uuid)
    task.state, task.attempts, task.error, task.due_at = TaskState.OPEN, 0, None, None
    task.finished_at = None
    handle.withheld = Withheld.CLEANING
    unit.hosts_to_wake.add(task.hostname)


def release_from_quarantine(unit: UnitOfWork, handle_uuid: str) -> None:
    """An operator says that a handle may be given out as it is."""
    handle, task = _quarantined(unit, handle_uuid)
    tasks.close(task, TaskState.CANCELLED)
    handle.withheld = None
    unit.hosts_to_wake.add(task.hostname)
