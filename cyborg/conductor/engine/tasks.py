# SPDX-License-Identifier: Apache-2.0
"""Tasks of hosts: creates those that prepare, program, release and clean."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from cyborg import backoff, errors, objects
from cyborg.conductor.engine import changes
from cyborg.conductor.engine.iommu_groups import function_of
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import agents, attach_handles, attributes, deployables, models, tasks
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy.engine import Session
from cyborg.objects import Cleaning, TaskKind, TaskState, Withheld, arq_states
from cyborg.objects.arq_states import Event

Arq = models.ExtArq
Handle = models.AttachHandle
Deployable = models.Deployable
Task = models.Task

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 300.0  #: seconds between two attempts of a host
#: keys of a profile's group that name an image
IMAGE_KEYS = ('bitstream_id', 'bitstream_name', 'function_id', 'function_name')
ACCEL = 'accel:'
#: the same as properties of a group
IMAGE_PROPERTIES = frozenset(f'{ACCEL}{key}' for key in IMAGE_KEYS)
CLEANING, CLEANING_REQUIRED = 'accel:cleaning', 'accel:cleaning_required'
#: whether a request names its image by id -> the visibilities of images that every project may use
OPEN = {False: ('public',), True: ('public', 'community')}


def _task(kind: TaskKind, handle: Handle, arq: Arq | None = None, **values: object) -> Task:
    """Returns a task for a handle whose deployable and device are loaded."""
    part, device = handle.deployable, handle.deployable.device
    return Task(
        kind=kind,
        hostname=device.hostname,
        device_uuid=device.uuid,
        deployable_uuid=part.uuid,
        handle_uuid=handle.uuid,
        generation=handle.generation,
        arq_uuid=arq.uuid if arq else None,
        instance_uuid=arq.instance_uuid if arq else None,
        project_id=arq.project_id if arq else None,
        **values,
    )


def add(unit: UnitOfWork, made: Sequence[Task]) -> None:
    """Store new tasks."""
    if made:
        tasks.add(unit.session, made, TaskState.OPEN)
    for task in made:
        unit.note(changes.of_task(task, 'created'))


def _assign(unit: UnitOfWork, task: Task, handle: Handle, arq: Arq | None) -> None:
    """Store a task and send it to its host after the commit."""
    part = handle.deployable
    unit.assign(
        task.hostname,
        tasks.show(task, part, part.device, handle, arq.group if arq else None, delay=0.0),
    )


def pause(attempts: int) -> float:
    """Returns the seconds between a failure and the next attempt."""
    return backoff.pause(attempts, LONGEST_PAUSE, FIRST_PAUSE)


def cancel_all(unit: UnitOfWork, hostname: str) -> None:
    """Cancel the tasks of a host that is forgotten, also those about which an operator has yet to
    decide."""
    tasks.end_all(
        unit.session, hostname, (TaskState.OPEN, TaskState.QUARANTINED), TaskState.CANCELLED
    )


# -- prepare ---------------------------------------------------------------------------------


def prepare(unit: UnitOfWork, held: Sequence[tuple[Arq, Handle]], *, is_told: bool = True) -> None:
    """Create tasks that prepare handles. Without ``is_told`` the hosts get them with their next
    plan."""
    made = [_task(TaskKind.PREPARE, handle, arq) for arq, handle in held]
    add(unit, made)
    for task, (arq, handle) in zip(made, held, strict=True):
        if is_told:
            _assign(unit, task, handle, arq)


# -- hand back -------------------------------------------------------------------------------


def hand_back(unit: UnitOfWork, held: Sequence[tuple[Arq, Handle]]) -> None:
    """Release the handles of requests. A handle can be taken again at once, or when its host has
    released and cleaned it."""
    after = {handle.uuid: _after(arq, handle) for arq, handle in held}
    cleaned = [handle for _, handle in held if TaskKind.CLEAN in after[handle.uuid]]
    lock_hosts_of_regions(unit, cleaned)
    being_programmed = _being_programmed(unit, held)
    by_reason: dict[Withheld | None, list[Handle]] = {}
    for _, handle in held:
        why = (
            Withheld.CLEANING
            if after[handle.uuid]
            else (Withheld.PROGRAMMING if handle.uuid in being_programmed else None)
        )
        by_reason.setdefault(why, []).append(handle)
    for why, handles in by_reason.items():
        attach_handles.release(unit.session, handles, why)
    alone = idle_parts(unit, cleaned)
    made = [
        (_task(kind, handle, arq, **_cleaning(arq, handle, kind, alone)), handle, arq)
        for arq, handle in held
        for kind in after[handle.uuid]
    ]
    add(unit, [task for task, _, _ in made])
    for task, handle, arq in made:
        if TaskKind.CLEAN in after[handle.uuid]:
            # not sent: a late message could clean a handle that another request has by then
            unit.hosts_to_wake.add(task.hostname)
        else:
            _assign(unit, task, handle, arq)
    for handle in by_reason.get(None, ()):
        if changes_inventory(handle):
            unit.hosts_to_wake.add(handle.deployable.device.hostname)


def changes_inventory(handle: Handle) -> bool:
    """Returns whether more than this handle may be available when it is given back: other handles
    of its card or IOMMU group, or its region, into which an image has to be loaded again."""
    device = handle.deployable.device
    return bool(
        handle.is_missing
        or device.fault
        or device.status != objects.DeviceStatus.ENABLED
        or region_of(handle.deployable) is not None
    )


def _after(arq: Arq, handle: Handle) -> list[TaskKind]:
    """Returns the kinds of tasks that follow a request, in order."""
    level = arq.group.get(CLEANING) or handle.cleaning
    return [
        *([TaskKind.RELEASE] if handle.is_host_prepared else []),
        *([TaskKind.CLEAN] if level != Cleaning.NONE else []),
    ]


def _cleaning(arq: Arq, handle: Handle, kind: TaskKind, alone: set[int]) -> dict[str, object]:
    """Returns the values of a clean task."""
    if kind != TaskKind.CLEAN:
        return {}
    required = arq.group.get(CLEANING_REQUIRED)
    return {
        'cleaning': arq.group.get(CLEANING),
        'is_alone': handle.deployable_id in alone,
        'is_cleaning_required': None if required is None else required.lower() == 'true',
    }


def _being_programmed(unit: UnitOfWork, held: Iterable[tuple[Arq, Handle]]) -> set[str]:
    """Returns handles, by uuid, of requests that are not Bound, into whose region an image is
    loaded."""
    regions = {
        handle.uuid: region.uuid
        for arq, handle in held
        if arq.state != objects.State.BOUND and (region := region_of(handle.deployable))
    }
    if not regions:
        return set()
    programmed = {
        task.deployable_uuid for task in tasks.programming_of(unit.session, set(regions.values()))
    }
    return {handle for handle, region in regions.items() if region in programmed}


def region_of(part: Deployable) -> Deployable | None:
    """Returns the programmable deployable whose content a deployable is: itself, or the region of
    which it is one function. A card is not a region of its regions."""
    if part.is_programmable:
        return part
    above = part.parent
    is_region = above is not None and above.is_programmable and above.parent_id is not None
    return above if is_region else None


def lock_hosts_of_regions(unit: UnitOfWork, handles: Sequence[Handle]) -> None:
    """Lock the hosts of those handles that are in a region, before ``idle_parts``. A concurrent
    report waits, or the handles that it adds are found there.

    If the handles are released after this, two transactions that each release a handle of one
    region cannot wait for one another.
    """
    devices = [handle.deployable.device for handle in handles if region_of(handle.deployable)]
    for hostname in sorted({device.hostname for device in devices}):
        agents.lock(unit.session, hostname)


def idle_parts(unit: UnitOfWork, handles: Sequence[Handle]) -> set[int]:
    """Returns the deployables of handles whose region no request uses any more. All handles of
    such a region are withheld until it is clean, because cleaning may remove its content."""
    alone: set[int] = set()
    regions: dict[Deployable, set[int]] = {}
    for handle in handles:
        region = region_of(handle.deployable)
        if region is None:
            alone.add(handle.deployable_id)
        else:
            regions.setdefault(region, set()).add(handle.deployable_id)
    for region, ids in regions.items():
        all_ids = deployables.at_and_below(unit.session, region)
        if attach_handles.lock_free_parts(unit.session, all_ids):
            attach_handles.withhold_parts(unit.session, all_ids, Withheld.CLEANING)
            alone |= ids
    return alone


def release_unwanted(unit: UnitOfWork, handles: Sequence[Handle]) -> None:
    """Have a host release free handles for which it still has a device prepared."""
    taken = [
        handle
        for handle in handles
        if attach_handles.withhold_one(unit.session, handle, Withheld.CLEANING)
    ]
    add(unit, [_task(TaskKind.RELEASE, handle) for handle in taken])


# -- program ---------------------------------------------------------------------------------


def image_of(group: Mapping[str, str]) -> dict[str, str]:
    """Returns the image that a profile's group asks for; empty if it asks for none."""
    return {key: group[f'{ACCEL}{key}'] for key in IMAGE_KEYS if f'{ACCEL}{key}' in group}


def is_loaded(part: Deployable, image: Mapping[str, str], project_id: str | None) -> bool:
    """Returns whether a deployable has the image already and the project may use that image. The
    attributes of the deployable must be loaded. The image of a function is that of its region.

    An image of another project that is shared with this one counts as not loaded: only its host
    can ask Glance. Nor does an image count that may be lost. A function that the hardware shows is
    offered to everybody.
    """
    region = region_of(part) or part
    if region.may_have_lost_image and image.keys() != {'function_id'}:
        return False
    facts = region.bitstream_facts or {}
    is_usable = (
        facts.get('visibility') in OPEN[image.keys() == {'bitstream_id'}]
        or project_id is not None
        and facts.get('owner') == project_id
    )
    if not is_usable and image.keys() - {'function_id'}:
        return False
    functions = {
        attributes.plain(value) for value in attributes.values(part.attributes, attributes.FUNCTION)
    }
    tests: dict[str, Callable[[str], bool]] = {
        'bitstream_id': lambda wanted: region.bitstream_id == wanted,
        'bitstream_name': lambda wanted: bool(region.bitstream_id) and facts.get('name') == wanted,
        'function_id': lambda wanted: attributes.plain(wanted) in functions,
        'function_name': lambda wanted: (
            bool(region.bitstream_id) and facts.get('function_name') == wanted
        ),
    }
    return all(tests[key](wanted) for key, wanted in image.items())


def program(
    unit: UnitOfWork,
    part: Deployable,
    image: Mapping[str, str],
    arq: Arq | None = None,
    holders: Collection[int] = (),
    even_disabled: bool = False,
) -> Task:
    """Have a host load an image into a deployable. Raises CannotProgram if that is not allowed.

    ``holders`` are the requests, by row, that hold parts of it and wait for the image.
    """
    if why := _refusal(part, even_disabled):
        raise errors.CannotProgram(uuid=part.uuid, why=why)
    _withhold_free_parts(unit, part, holders)
    task = Task(
        kind=TaskKind.PROGRAM,
        hostname=part.device.hostname,
        device_uuid=part.device.uuid,
        deployable_uuid=part.uuid,
        image=dict(image),
        image_uuid=image.get('bitstream_id'),
        # shown until the host sends its own; None means that no image is being loaded
        progress=_waiting(part.device.hostname, image),
        arq_uuid=arq.uuid if arq else None,
        instance_uuid=arq.instance_uuid if arq else None,
        project_id=arq.project_id if arq else None,
        request_id=unit.request_id,
    )
    add(unit, [task])
    part.program_task_uuid = task.uuid
    # not sent: the host is woken, reports, and gets the task with its plan
    unit.hosts_to_wake.add(part.device.hostname)
    return task


def _waiting(hostname: str, image: Mapping[str, str]) -> str:
    wanted = ', '.join(f'{key} {value}' for key, value in image.items())
    return f'Waiting for {hostname} to find the image with the {wanted}.'


def _refusal(part: Deployable, even_disabled: bool) -> str | None:
    if part.device.is_missing:
        return 'its device is gone from the host.'
    if part.device.status != objects.DeviceStatus.ENABLED and not even_disabled:
        return 'its device is disabled; enable it first.'
    if part.is_programmable:
        return None
    if (region := region_of(part)) is not None:
        return f'it is a function of a region; load the image into deployable {region.uuid} first.'
    return f'driver {part.device.driver_name} cannot load images into it.'


def _withhold_free_parts(unit: UnitOfWork, part: Deployable, holders: Collection[int]) -> None:
    """Withhold all handles at and below a deployable, or raise CannotProgram.

    After a loss of power, a PCI function that a request holds is also a handle of what the region
    does now. That handle is missing, and goes when the image is loaded.
    """
    agents.lock(unit.session, part.device.hostname)  # as in ``lock_hosts_of_regions``
    ids = deployables.at_and_below(unit.session, part)
    taken = attach_handles.withhold_parts(unit.session, ids, Withheld.PROGRAMMING)
    handles = attach_handles.use_of(unit.session, ids)
    held = {function_of(handle) for handle, _ in handles if handle.arq_id in holders} - {None}
    handles = [
        (handle, arq)
        for handle, arq in handles
        if not (_is_idle_and_missing(handle) and function_of(handle) in held)
    ]
    if taken + sum(handle.arq_id in holders for handle, _ in handles) != len(handles):
        others = (_use(handle, arq) for handle, arq in handles if handle.arq_id not in holders)
        raise errors.CannotProgram(
            uuid=part.uuid,
            why=next(filter(None, others), 'a deployable above or below it is being programmed.'),
        )


def _is_idle_and_missing(handle: Handle) -> bool:
    return handle.arq_id is None and handle.withheld is None and handle.is_missing


def _use(handle: Handle, arq: str | None) -> str | None:
    """Returns why a handle is not free; None if it is, or is withheld for this programming."""
    if arq is not None:
        return f'accelerator request {arq} has a part of it; unbind that first.'
    if handle.withheld == Withheld.CLEANING:
        return 'its host has not cleaned it yet after its last request.'
    if handle.withheld == Withheld.QUARANTINED:
        return 'a part of it is quarantined, since it could not be cleaned.'
    if handle.is_missing:
        return 'a part of it is missing, or another program uses it without a request.'
    return None


def program_for_operator(unit: UnitOfWork, uuid: str, image_uuid: str) -> None:
    """Have a host load an image. If that image is being loaded already, do nothing, unless it was
    for a request that has ended: its host does not load it then."""
    part = deployables.locked(unit.session, uuid)
    if part is None:
        raise errors.DeployableNotFound(uuid=uuid)
    for task in tasks.programming_of(unit.session, [part.uuid]):
        is_left = task.arq_uuid is not None and not _is_awaited(unit.session, task)
        if task.image_uuid != image_uuid or is_left:
            raise errors.CannotProgram(
                uuid=uuid,
                why=f'image {task.image_uuid or "of another request"} is being loaded '
                'into it; wait until that has ended.',
            )
        unit.hosts_to_wake.add(part.device.hostname)
        return
    program(unit, part, {'bitstream_id': image_uuid})


def is_programmed(session: Session, uuid: str) -> bool:
    """Returns whether a task has loaded its image, also if others were loaded since. Raises
    ProgramFailed if it has failed."""
    task = tasks.one(session, uuid)
    if task is not None and task.state in (TaskState.OPEN, TaskState.DONE):
        return task.state == TaskState.DONE
    raise errors.ProgramFailed(
        uuid=task.deployable_uuid if task else 'of an unknown task',
        why=task and task.error or 'it was cancelled.',
    )


def is_wanted(session: Session, hostname: str, uuid: str) -> bool:
    """Returns whether a host must still perform a task. One that loads an image for a request stays
    open when the request has ended: its tool may be running, so the host has to end it."""
    task = tasks.open_one(session, hostname, uuid)
    if task is None:
        return False
    return task.kind != TaskKind.PROGRAM or task.arq_uuid is None or _is_awaited(session, task)


def _is_awaited(session: Session, task: Task) -> bool:
    """Returns whether a request waits for the image that a task loads."""
    part = deployables.row(session, task.deployable_uuid)
    if part is None:
        return False
    states = attach_handles.states_of_holders(session, deployables.at_and_below(session, part))
    return not arq_states.UNFINISHED.isdisjoint(states)


# -- hand-backs that have ended ---------------------------------------------------------------


def note_hand_back(unit: UnitOfWork, task: Task, text: str) -> None:
    """Record in the history of a request, also if it was deleted, how its handle was given back.

    The step has the host, the server and the project that the request had then: it may be bound
    elsewhere by now, for another server or project.
    """
    if task.arq_uuid is None:
        return
    [row] = arqs_db.named(unit.session, [task.arq_uuid]) or [Arq(state=objects.State.DELETING)]
    past = Arq(
        uuid=task.arq_uuid,
        project_id=task.project_id,
        hostname=task.hostname,
        instance_uuid=task.instance_uuid,
        group=row.group,
        device_profile_id=row.device_profile_id,
        device_profile_name=row.device_profile_name,
    )
    unit.step(past, Event.HANDED_BACK, row.state, row.state, text)


def give_back(unit: UnitOfWork, handles: Sequence[Handle]) -> None:
    """Offer clean handles again. Those of a region wait until all of it is clean, or released by an
    operator, and until no image is being loaded into it."""
    parts = {handle.deployable for handle in handles}
    regions = {part: region for part in parts if (region := region_of(part)) is not None}
    for handle in handles:
        handle.withheld = Withheld.CLEANING if handle.deployable in regions else None
    for part in sorted(regions, key=lambda part: regions[part].id):  # the order of the locks
        give_back_parts(unit, part)


def give_back_parts(unit: UnitOfWork, part: Deployable) -> None:
    """Offer the handles again that were withheld while the region of a deployable was cleaned,
    unless an image is being loaded into it, or it could not be cleaned as a whole."""
    region = region_of(part)
    if region is None:
        return
    unit.session.flush()
    # of two transactions that each end one clean-up, the second must see what the first has done
    deployables.lock(unit.session, region)
    ids = deployables.at_and_below(unit.session, region)
    if tasks.is_clean_up_due(unit.session, ids):
        return  # the function of its last user may still be in it
    is_programming = bool(tasks.programming_of(unit.session, [region.uuid]))
    attach_handles.give_back(
        unit.session,
        ids,
        Withheld.CLEANING,
        Withheld.PROGRAMMING if is_programming else None,
    )
