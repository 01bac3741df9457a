# SPDX-License-Identifier: Apache-2.0
"""The inventory of a host: applies its reports to the rows.

A report is compared with the rows by key: devices and handles by their key, deployables by name.
"""

import contextlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set

from oslo_log import log

from cyborg import objects
from cyborg.conductor.engine import device_events, imported, iommu_groups
from cyborg.conductor.engine.lost_images import Emptied
from cyborg.conductor.engine.open_tasks import Opened
from cyborg.conductor.engine.tasks import region_of
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import attach_handles, attributes, devices, models, tasks
from cyborg.db.sqlalchemy.engine import TRANSIENT, Session
from cyborg.objects import Withheld

LOG = log.getLogger(__name__)

Device = models.Device
Deployable = models.Deployable
Handle = models.AttachHandle
Divided = models.DividedCard

DEVICE_FACTS = (
    'type',
    'vendor',
    'model',
    'driver_name',
    'std_board_info',
    'vendor_board_info',
    'fault',
)
DEPLOYABLE_FACTS = ('driver_name', 'is_programmable', 'resource_class', 'traits', 'reserved')
#: The fault of such a card. The held handle exists again when its server starts.
HELD_OTHERWISE = (
    'A request holds the whole card, which is divided now, or a part of it, which is not '
    'divided any more: the card is offered again when that request is deleted.'
)
NOT_STORED = (
    'The report of its driver cannot be stored ({kind}), see the log of the '
    'conductor: the device keeps its last state and is not offered.'
)
HANDLE_FACTS = ('type', 'info', 'is_host_prepared', 'cleaning')


def reconcile(
    unit: UnitOfWork, report: objects.Report, *, is_apart: bool = False
) -> tuple[list[Device], list[Emptied]]:
    """Update the rows of a host from its report. Returns the remaining rows, and the deployables
    that must be programmed again.

    The devices of a driver that failed keep their state. A device that is gone while a request
    holds a part of it is kept, marked as missing, until it is released.

    ``is_apart``: each card has a savepoint of its own. A card that cannot be stored keeps its rows
    and shows a fault; the others are updated.
    """
    session = unit.session
    rows = {row.key: row for row in devices.load(session, report.hostname)}
    reported = {device.key for device in report.devices}
    opened = Opened(tasks.of_host(session, report.hostname))
    conditions = device_events.Conditions(rows.values())
    silent = {driver.name for driver in report.drivers if driver.status != objects.DriverStatus.OK}
    gone = [
        key
        for key, row in rows.items()
        if key not in reported and row.driver_name not in silent and not row.is_imported
    ]
    for key in gone:
        with _apart(session, rows, key) if is_apart else contextlib.nullcontext():
            _withdraw(session, rows, key, opened)
    session.flush()  # deletes rows before new ones take their unique keys
    _forget_occupants(report, rows.values())
    shared = iommu_groups.Groups(report, rows.values())
    attach_handles.lock(shared.handles)
    taken = {part.name for row in rows.values() for part in row.deployables}
    divided = _divided(session, rows, report)
    opened.images.suspect(rows.values(), report, opened.programmed)
    for device in report.devices:
        with _apart(session, rows, device.key, device) if is_apart else contextlib.nullcontext():
            _take_in(session, rows, device, taken, divided.get(device.key), report, opened)
    for row in rows.values():
        if row.is_imported:
            _set(row, fault=imported.NOT_REPORTED)
    shared.withhold(rows.values())
    session.flush()
    for change in conditions.compare(session, rows.values()):
        unit.note(change)
    return list(rows.values()), list(opened.images.emptied(rows.values()))


def _withdraw(session: Session, rows: dict[str, Device], key: str, opened: Opened) -> None:
    """Delete the parts of a card that is gone, except the parts that requests hold."""
    row = rows[key]
    is_divided = any(
        handle.type == objects.HandleType.PCI and not _is_whole(row, handle)
        for part in row.deployables
        for handle in part.attach_handles
    )
    held = [part for part in row.deployables if _remove(part, opened)]
    if held:
        _set(row, is_missing=True)
        return
    session.delete(rows.pop(key))
    if is_divided:
        devices.forget_divided(session, row.hostname, key)
        session.add(Divided(hostname=row.hostname, key=key, vendor=row.vendor, model=row.model))


def _take_in(
    session: Session,
    rows: dict[str, Device],
    device: objects.Device,
    taken: set[str],
    past: models.DividedCard | None,
    report: objects.Report,
    opened: Opened,
) -> None:
    """Update the rows of a card from its report."""
    row = rows.get(device.key)
    if row is None:
        if taken & {part.name for part in device.deployables}:
            LOG.warning(
                'Device %s on %s is at the address of another one that is still in use; it is '
                'not offered until that one is free.',
                device.key,
                device.hostname,
            )
            return
        row = rows[device.key] = Device(hostname=device.hostname, key=device.key)
        session.add(row)
    was_divided = past is not None and (past.vendor, past.model) == (device.vendor, device.model)
    _update_device(session, row, device, report, was_divided, opened)
    if past is not None and _has_handles(row):  # the card is offered again, in its present form
        session.delete(past)


def _divided(
    session: Session, rows: dict[str, Device], report: objects.Report
) -> dict[str, models.DividedCard]:
    """Returns the records of reported cards, by key, that were divided when they were removed."""
    new = {
        device.key
        for device in report.devices
        if device.key not in rows or not _has_handles(rows[device.key])
    }
    if not new:
        return {}
    return {each.key: each for each in devices.divided(session, report.hostname) if each.key in new}


def _has_handles(row: Device) -> bool:
    return any(part.attach_handles for part in row.deployables)


@contextlib.contextmanager
def _apart(
    session: Session, rows: dict[str, Device], key: str, device: objects.Device | None = None
) -> Iterator[None]:
    """Roll back the update of one card if it fails, and record the failure as its fault."""
    row = rows.get(key)
    try:
        with session.begin_nested():
            yield
            session.flush()
    except TRANSIENT:
        raise
    except Exception as error:
        LOG.exception('Device %s cannot be stored.', key)
        fault = NOT_STORED.format(kind=type(error).__name__)
        if row is None and device is not None:
            row = _without_parts(session, device)
        if row is None:
            rows.pop(key, None)
            return
        rows[key] = row
        _set(row, fault=fault)


def _without_parts(session: Session, device: objects.Device) -> Device | None:
    """Returns a row without parts for a new card that cannot be stored whole, or None."""
    row = Device(hostname=device.hostname, key=device.key, **_facts(device, DEVICE_FACTS))
    try:
        with session.begin_nested():
            session.add(row)
    except TRANSIENT:
        raise
    except Exception:
        LOG.exception('Device %s cannot be shown.', device.key)
        return None
    return row


def _set(row: models.Base, **values: object) -> None:
    """Assign only values that differ, so that an unchanged row needs no UPDATE."""
    for name, value in values.items():
        if getattr(row, name) != value:
            setattr(row, name, value)


def _facts(source: objects.CyborgObject, names: Iterable[str]) -> dict[str, object]:
    return {name: source.given(name) for name in names}


def _update_device(
    session: Session,
    row: Device,
    device: objects.Device,
    report: objects.Report,
    was_divided: bool,
    opened: Opened,
) -> None:
    _set(row, is_missing=False, **_facts(device, DEVICE_FACTS))
    paths = [(path.type, path.info) for path in device.control_paths]
    if [(path.type, path.info) for path in row.control_paths] != paths:
        row.control_paths = [models.ControlPath(type=type, info=info) for type, info in paths]
    if device.given('fault_if_changed') and (_lost(row, device) or was_divided):
        _set(row, fault=device.fault or device.fault_if_changed)
        return
    named = _update_deployables(row, device, report, opened)
    present = set(named)
    opened.withhold_new(session, row)
    gone = [part for part in row.deployables if part not in present]
    kept = _with_parents([*named, *(part for part in gone if _remove(part, opened))])
    for part in gone:
        if part not in kept:
            row.deployables.remove(part)
    _withhold_doubles(row)
    if row.fault is None and _is_held_otherwise(row):
        _set(row, fault=HELD_OTHERWISE)


def _update_deployables(
    row: Device, device: objects.Device, report: objects.Report, opened: Opened
) -> list[Deployable]:
    """Update the deployables of a card from its report; returns those that it contains."""
    known = {part.name: part for part in row.deployables}
    in_flux = set(report.given('in_flux', ()))
    functions = {
        name: attributes.values(part.attributes, attributes.FUNCTION)
        for name, part in known.items()
        if in_flux
    }
    present = []
    for deployable in device.deployables:
        part = known.pop(deployable.name, None)
        if part is None:
            part = Deployable(name=deployable.name)
            row.deployables.append(part)
        _update_deployable(part, deployable, report, opened)
        present.append(part)
    by_name = {part.name: part for part in row.deployables}
    for deployable in device.deployables:
        part = by_name[deployable.name]
        _set(
            part,
            parent=by_name.get(deployable.parent_name),
            root=_root(deployable, by_name, device),
        )
    if in_flux:
        _forget_new_functions(row, functions, in_flux)
    return present


def _forget_new_functions(
    row: Device, known: Mapping[str, Sequence[str]], in_flux: Set[str]
) -> None:
    """Forget the functions that a report adds to regions which tasks changed during its discovery:
    they may be replaced since. The report that follows the tasks has those that are there.

    ``known`` are the functions before the report, by the name of their deployable.
    """
    changed = {
        region_of(part) or part
        for part in row.deployables
        if part.uuid in in_flux or any(handle.uuid in in_flux for handle in part.attach_handles)
    }
    for part in row.deployables:
        if (region_of(part) or part) in changed:
            attributes.forget_functions(part, known.get(part.name, ()))


def _withhold_doubles(row: Device) -> None:
    """Mark a handle as missing while another deployable of the card has a held, quarantined or
    uncleaned handle of the same PCI function.

    An FPGA region offers its functions itself while it is empty, and below its accelerators while
    an image is loaded. A request may hold one of them from before.
    """
    handles = [
        (address, handle)
        for part in row.deployables
        for handle in part.attach_handles
        if (address := iommu_groups.function_of(handle)) is not None
    ]
    held: dict[str, Deployable] = {}
    # a new one is withheld, too, while the region is cleaned
    for address, handle in sorted(handles, key=_by_right):
        if handle.arq_id is not None or handle.withheld not in (None, Withheld.PROGRAMMING):
            held.setdefault(address, handle.deployable)
    for address, handle in handles:
        if handle.arq_id is None and held.get(address, handle.deployable) is not handle.deployable:
            _set(handle, is_missing=True)


def _by_right(known: tuple[str, Handle]) -> tuple[bool, bool, int]:
    """Sorts the handles of one function: held ones first, then by age."""
    _, handle = known
    return handle.arq_id is None, handle.id is None, handle.id or 0


def _with_parents(parts: Sequence[Deployable]) -> list[Deployable]:
    """Returns these deployables with their parents and roots."""
    found = list(parts)
    for part in found:
        found += [
            above for above in (part.parent, part.root) if above is not None and above not in found
        ]
    return found


def _is_held_otherwise(row: Device) -> bool:
    """Returns whether a request holds the whole card while the card is divided now, or a part
    while it is not.

    The held handle exists again when its server starts; the other handles would disappear then."""
    handles = [handle for part in row.deployables for handle in part.attach_handles]
    held = {_is_whole(row, handle) for handle in handles if handle.is_missing}
    present = {_is_whole(row, handle) for handle in handles if not handle.is_missing}
    return bool(held and present) and len(held | present) > 1


def _is_whole(row: Device, handle: Handle) -> bool:
    return handle.type == objects.HandleType.PCI and any(
        path.info.items() <= handle.info.items() for path in row.control_paths
    )


def _lost(row: Device, device: objects.Device) -> bool:
    """Mark handles that the report lacks as missing; returns whether there are any."""
    present = {handle.key for part in device.deployables for handle in part.attach_handles}
    gone = [
        handle
        for part in row.deployables
        for handle in part.attach_handles
        if handle.key not in present
    ]
    for handle in gone:
        _set(handle, is_missing=True)
    return bool(gone)


def _root(
    deployable: objects.Deployable, rows: dict[str, Deployable], device: objects.Device
) -> Deployable | None:
    """Returns the topmost deployable above this one; None for the topmost itself."""
    parents = {each.name: each.parent_name for each in device.deployables}
    name = deployable.name
    for _ in parents:  # bounded: a faulty driver may report parents in a circle
        if parents.get(name) in rows:
            name = parents[name]
    return None if name == deployable.name else rows[name]


def _update_deployable(
    row: Deployable, deployable: objects.Deployable, report: objects.Report, opened: Opened
) -> None:
    handles = {handle.key: handle for handle in row.attach_handles}
    occupants = set(deployable.given('occupants', ()))
    if occupants.difference(handle.uuid for handle in row.attach_handles):
        attach_handles.lock(list(handles.values()))
    for handle in deployable.attach_handles:
        mine = handles.pop(handle.key, None)
        if mine is None:
            # derived from stable names, so that a card that returns gets the same handles
            derived = uuid.uuid5(uuid.UUID(deployable.rp_uuid), handle.key)
            mine = Handle(key=handle.key, uuid=str(derived), generation=report.sequence)
            row.attach_handles.append(mine)
        _set(mine, is_missing=_is_taken(mine, handle.occupant), **_facts(handle, HANDLE_FACTS))
    _remove_handles(row, list(handles.values()))
    _make_room(row, occupants.difference(handle.uuid for handle in row.attach_handles))
    if row.attach_handles and deployable.resource_class is None:
        # a held deployable keeps its class: the card may have been read during its removal
        deployable.resource_class = row.resource_class
    _set(
        row,
        rp_uuid=_rp_uuid(row, deployable, report),
        num_accelerators=len(row.attach_handles),
        **_facts(deployable, DEPLOYABLE_FACTS),
    )
    opened.images.compare(
        row, deployable, report.given('boot_id'), is_programming=opened.is_programming(row)
    )
    attributes.update(row, attributes.told(deployable))


def _make_room(row: Deployable, strangers: Collection[str]) -> None:
    """Mark one free handle as missing for each device that another program has created."""
    free = [handle for handle in row.attach_handles if handle.is_unused and not handle.is_missing]
    for handle in free[max(0, len(free) - len(strangers)) :]:
        handle.is_missing = True


def _rp_uuid(row: Deployable, deployable: objects.Deployable, report: objects.Report) -> str:
    """Returns the provider's uuid: Placement's, else the stored one. An adopted provider keeps its
    uuid, though the agent may not have asked Placement since it started."""
    derived: str = deployable.rp_uuid
    if report.given('adopted') is None:
        return derived
    return report.adopted.get(row.name) or row.rp_uuid or derived


def _forget_occupants(report: objects.Report, rows: Iterable[Device]) -> None:
    """Drop occupants from a report that were Cyborg's own during the discovery. Such a handle may
    have been cleaned since, and the occupant must not count as that of another program."""
    known = attach_handles.known_to_host(report)
    ours = {
        (part.name, handle.key)
        for row in rows
        for part in row.deployables
        for handle in part.attach_handles
        if handle.uuid in known
    }
    for part in (part for device in report.devices for part in device.deployables):
        for handle in part.attach_handles:
            if (part.name, handle.key) in ours:
                handle.occupant = None


def _is_taken(handle: Handle, occupant: str | None) -> bool:
    """Returns whether another program uses the handle without a request."""
    return (
        occupant not in (None, handle.uuid)
        and handle.arq_id is None
        and handle.withheld in (None, Withheld.PROGRAMMING)
    )


def _remove(row: Deployable, opened: Opened) -> bool:
    """Delete the handles that no request holds. Returns True if the deployable must stay because
    handles are held or tasks are open."""
    _remove_handles(row, list(row.attach_handles))
    return bool(row.attach_handles) or row.uuid in opened.programmed


def _remove_handles(row: Deployable, handles: Sequence[Handle]) -> None:
    # also those that are held: they may have been released since they were read
    attach_handles.lock(handles)
    for handle in handles:
        if handle.is_unused:
            row.attach_handles.remove(handle)
        else:
            _set(handle, is_missing=True)


def gone(rows: Iterable[Device]) -> set[int]:
    """Returns the ids of held, host-prepared handles that are missing."""
    return {
        handle.id
        for device in rows
        for part in device.deployables
        for handle in part.attach_handles
        if handle.is_missing and handle.is_host_prepared and handle.arq_id is not None
    }
