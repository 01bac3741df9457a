# SPDX-License-Identifier: Apache-2.0
"""A host's devices as one picture: taking a report in, and telling what Placement should show.

A report is a keyed set difference against the rows, never a guess: devices by their key,
deployables by name, handles by key.
"""

import contextlib
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence

from oslo_log import log

from cyborg import objects
from cyborg.conductor.engine import iommu_groups, notices
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import attach_handles, attributes, devices, models, tasks
from cyborg.db.sqlalchemy.engine import TRANSIENT, Session
from cyborg.objects import TaskKind, Withheld

LOG = log.getLogger(__name__)

Device, Deployable, Handle = models.Device, models.Deployable, models.AttachHandle
Divided = models.DividedCard

DEVICE_FACTS = ('type', 'vendor', 'model', 'driver_name', 'std_board_info',
                'vendor_board_info', 'fault')
DEPLOYABLE_FACTS = ('driver_name', 'is_programmable')
#: a server may start again that holds what is not there now
HELD_OTHERWISE = ('A request holds the card whole while it has parts, or parts of it while it is '
                  'whole: it is offered again when that request is gone.')
NOT_STORED = ('What its driver reports of it cannot be stored ({kind}), see the log of the '
              'conductor: it is kept as it was, and not offered.')
HANDLE_FACTS = ('type', 'info', 'is_host_prepared', 'cleaning')


def reconcile(unit: UnitOfWork, report: objects.Report, *, is_apart: bool = False) -> list[Device]:
    """Make the rows of a host what its report says; answers the rows that are left.

    A driver that failed has said nothing, so its devices stay as they are. What vanished while
    somebody holds a part of it stays too, marked as missing, until it is let go.

    ``is_apart``: each card has a savepoint of its own. One that fails keeps its rows and shows a
    fault, the others are updated.
    """
    session = unit.session
    rows = {row.key: row for row in devices.load(session, report.hostname)}
    opened = Opened(tasks.of_host(session, report.hostname), report.is_first)
    conditions = notices.Conditions(rows.values())
    silent = {driver.name for driver in report.drivers
              if driver.status != objects.DriverStatus.OK}
    reported = {device.key for device in report.devices}
    gone = [key for key, row in rows.items()
            if key not in reported and row.driver_name not in silent]
    for key in gone:
        with _apart(session, rows, key) if is_apart else contextlib.nullcontext():
            _withdraw(session, rows, key, opened)
    session.flush()  # before anything new comes in the place of what went
    _forget_occupants(report, rows.values())
    shared = iommu_groups.Groups(report, rows.values())
    attach_handles.lock(shared.handles)
    taken = {part.name for row in rows.values() for part in row.deployables}
    divided = _divided(session, rows, report)
    for device in report.devices:
        with _apart(session, rows, device.key, device) if is_apart else contextlib.nullcontext():
            _take_in(session, rows, device, taken, divided.get(device.key), report, opened)
    shared.withhold(rows.values())
    session.flush()
    unit.notices += conditions.compare(session, rows.values())
    return list(rows.values())


def _withdraw(session: Session, rows: dict[str, Device], key: str,
              opened: 'Opened') -> None:
    """Drop what nobody holds of a card that is gone."""
    row = rows[key]
    is_divided = any(handle.type == objects.HandleType.PCI and not _is_whole(row, handle)
                     for part in row.deployables for handle in part.attach_handles)
    held = [part for part in row.deployables if _remove(part, opened)]
    if held:
        _set(row, is_missing=True)
        return
    session.delete(rows.pop(key))
    if is_divided:
        devices.forget_divided(session, row.hostname, key)
        session.add(Divided(hostname=row.hostname, key=key, vendor=row.vendor, model=row.model))


def _take_in(session: Session, rows: dict[str, Device], device: objects.Device,
             taken: set[str], past: models.DividedCard | None, report: objects.Report,
             opened: 'Opened') -> None:
    """Make the rows of a card what its report says."""
    row = rows.get(device.key)
    if row is None:
        if taken & {part.name for part in device.deployables}:
            LOG.warning('Device %s on %s sits where another one is still in use; it waits '
                        'until that one is free.', device.key, device.hostname)
            return
        row = rows[device.key] = Device(hostname=device.hostname, key=device.key)
        session.add(row)
    was_divided = past is not None and (past.vendor, past.model) == (device.vendor, device.model)
    _update_device(row, device, report, was_divided, opened)
    if past is not None and _has_handles(row):  # it is given out again, as it is now
        session.delete(past)


def _divided(session: Session, rows: dict[str, Device],
             report: objects.Report) -> dict[str, models.DividedCard]:
    """What is remembered, by key, of cards that come back with this report."""
    new = {device.key for device in report.devices
           if device.key not in rows or not _has_handles(rows[device.key])}
    if not new:
        return {}
    return {each.key: each for each in devices.divided(session, report.hostname)
            if each.key in new}


def _has_handles(row: Device) -> bool:
    return any(part.attach_handles for part in row.deployables)


@contextlib.contextmanager
def _apart(session: Session, rows: dict[str, Device], key: str,
           device: objects.Device | None = None) -> Iterator[None]:
    """Undo the update of one card if it fails, and note that as its fault."""
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
        if row is None:
            row = _without_parts(session, device)
        if row is None:
            rows.pop(key, None)
            return
        rows[key] = row
        _set(row, fault=fault)


def _without_parts(session: Session, device: objects.Device) -> Device | None:
    """A row for a new card that cannot be stored as it is; None if even that fails."""
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
    """Assign what differs, so that an unchanged row costs no statement."""
    for name, value in values.items():
        if getattr(row, name) != value:
            setattr(row, name, value)


def _facts(source: objects.CyborgObject, names: Iterable[str]) -> dict[str, object]:
    return {name: source.given(name) for name in names}


def _update_device(row: Device, device: objects.Device, report: objects.Report,
                   was_divided: bool, opened: 'Opened') -> None:
    _set(row, is_missing=False, **_facts(device, DEVICE_FACTS))
    paths = [(path.type, path.info) for path in device.control_paths]
    if [(path.type, path.info) for path in row.control_paths] != paths:
        row.control_paths = [models.ControlPath(type=type, info=info) for type, info in paths]
    if device.given('doubt') and (_lost(row, device) or was_divided):
        _set(row, fault=device.fault or device.doubt)
        return
    parts = {part.name: part for part in row.deployables}
    present = []
    for deployable in device.deployables:
        part = parts.pop(deployable.name, None)
        if part is None:
            part = Deployable(name=deployable.name)
            row.deployables.append(part)
        _update_deployable(part, deployable, report, opened)
        present.append(part)
    by_name = {part.name: part for part in row.deployables}
    for deployable in device.deployables:
        part = by_name[deployable.name]
        _set(part, parent=by_name.get(deployable.parent_name),
             root=_root(deployable, by_name, device))
    for part in row.deployables:
        if opened.is_programming(part):  # a handle that is new came while it was programmed
            for handle in part.attach_handles:
                if handle.is_unused:
                    handle.withheld = Withheld.PROGRAMMING
    kept = _with_parents([*present, *(part for part in parts.values() if _remove(part, opened))])
    for part in parts.values():
        if part not in kept:
            row.deployables.remove(part)
    if row.fault is None and _is_held_otherwise(row):
        _set(row, fault=HELD_OTHERWISE)


def _with_parents(parts: Sequence[Deployable]) -> list[Deployable]:
    """These and the deployables that their rows refer to."""
    found = list(parts)
    for part in found:
        found += [above for above in (part.parent, part.root)
                  if above is not None and above not in found]
    return found


def _is_held_otherwise(row: Device) -> bool:
    """Does somebody hold the card whole which has parts now, or parts of one that is whole now?
    What he holds comes back with his server, and takes away what it is made of."""
    handles = [handle for part in row.deployables for handle in part.attach_handles]
    held = {_is_whole(row, handle) for handle in handles if handle.is_missing}
    present = {_is_whole(row, handle) for handle in handles if not handle.is_missing}
    return bool(held and present) and len(held | present) > 1


def _is_whole(row: Device, handle: Handle) -> bool:
    return handle.type == objects.HandleType.PCI and any(
        path.info.items() <= handle.info.items() for path in row.control_paths)


def _lost(row: Device, device: objects.Device) -> bool:
    """Have parts gone that it had? They are marked as missing, and keep their places."""
    present = {handle.key for part in device.deployables for handle in part.attach_handles}
    gone = [handle for part in row.deployables for handle in part.attach_handles
            if handle.key not in present]
    for handle in gone:
        _set(handle, is_missing=True)
    return bool(gone)


def _root(deployable: objects.Deployable, rows: dict[str, Deployable],
          device: objects.Device) -> Deployable | None:
    """The topmost deployable above this one; None for the topmost itself."""
    parents = {each.name: each.parent_name for each in device.deployables}
    name = deployable.name
    for _ in parents:  # so that parents in a circle, a driver's mistake, end as an error
        if parents.get(name) in rows:
            name = parents[name]
    return None if name == deployable.name else rows[name]


def _update_deployable(row: Deployable, deployable: objects.Deployable,
                       report: objects.Report, opened: 'Opened') -> None:
    handles = {handle.key: handle for handle in row.attach_handles}
    occupants = set(deployable.given('occupants', ()))
    if occupants.difference(handle.uuid for handle in row.attach_handles):
        attach_handles.lock(list(handles.values()))
    for handle in deployable.attach_handles:
        mine = handles.pop(handle.key, None)
        if mine is None:
            # derived, so that a card which comes back finds what was left of its handles
            derived = uuid.uuid5(uuid.UUID(deployable.rp_uuid), handle.key)
            mine = Handle(key=handle.key, uuid=str(derived), generation=report.sequence)
            row.attach_handles.append(mine)
        _set(mine, is_missing=_is_taken(mine, handle.occupant), **_facts(handle, HANDLE_FACTS))
    _remove_handles(row, list(handles.values()))
    _make_room(row, occupants.difference(handle.uuid for handle in row.attach_handles))
    _set(row, rp_uuid=_rp_uuid(row, deployable, report),
         num_accelerators=len(row.attach_handles),
         **_facts(deployable, DEPLOYABLE_FACTS))
    _update_bitstream(row, deployable, opened)
    if row.attach_handles and deployable.resource_class is None:
        # what is held still counts as what it was: the card may be seen half gone
        deployable.resource_class = attributes.resource_class(row.attributes)
    attributes.update(row, attributes.told(deployable))


def _update_bitstream(row: Deployable, deployable: objects.Deployable,
                      opened: 'Opened') -> None:
    """Forget the image when the hardware shows that another one was loaded since: by somebody
    else, or by the card itself when the host was switched on."""
    content = deployable.given('content', {})
    if deployable.bitstream_id:
        _set(row, bitstream_id=deployable.bitstream_id, bitstream_content=content)
    elif row.bitstream_id and not opened.is_programming(row):
        known = row.bitstream_content or {}
        # nobody has seen the content since the image was loaded: it may be gone already
        is_lost = opened.is_restarted and not known and bool(content)
        if not is_lost and all(known.get(name, value) == value for name, value in content.items()):
            _set(row, bitstream_content=known | content)
        else:
            _set(row, bitstream_id=None, bitstream_content=None, bitstream_facts=None)


def _make_room(row: Deployable, strangers: Collection[str]) -> None:
    """Mark as many free handles as missing as somebody else has made devices in their place."""
    free = [handle for handle in row.attach_handles if handle.is_unused and not handle.is_missing]
    for handle in free[max(0, len(free) - len(strangers)):]:
        handle.is_missing = True


def _rp_uuid(row: Deployable, deployable: objects.Deployable, report: objects.Report) -> str:
    """What Placement said, else what is known: Nova keeps the uuid of a provider that was
    adopted, whether or not the agent has asked Placement since it started."""
    if report.given('adopted') is None:
        return deployable.rp_uuid
    return report.adopted.get(row.name) or row.rp_uuid or deployable.rp_uuid


def _forget_occupants(report: objects.Report, rows: Iterable[Device]) -> None:
    """Drop from a report what the host saw at handles that were its own when it looked: such a
    handle may have been cleaned since, and is not somebody else's."""
    known = attach_handles.known_to_host(report)
    ours = {(part.name, handle.key) for row in rows for part in row.deployables
            for handle in part.attach_handles if handle.uuid in known}
    for part in (part for device in report.devices for part in device.deployables):
        for handle in part.attach_handles:
            if (part.name, handle.key) in ours:
                handle.occupant = None


def _is_taken(handle: Handle, occupant: str | None) -> bool:
    """Does somebody else have it, who never asked us?"""
    return (occupant not in (None, handle.uuid) and handle.arq_id is None
            and handle.withheld in (None, Withheld.PROGRAMMING))


def _remove(row: Deployable, opened: 'Opened') -> bool:
    """Drop the handles nobody holds; True if some are held or the host is not done with it, so
    that it must stay."""
    _remove_handles(row, list(row.attach_handles))
    return bool(row.attach_handles) or row.uuid in opened.programmed


def _remove_handles(row: Deployable, handles: Sequence[Handle]) -> None:
    attach_handles.lock([handle for handle in handles if handle.is_unused])
    for handle in handles:
        if handle.is_unused:
            row.attach_handles.remove(handle)
        else:
            _set(handle, is_missing=True)


def gone(rows: Iterable[Device]) -> set[int]:
    """What a host no longer has of all that it prepared for requests, by row."""
    return {handle.id for device in rows for part in device.deployables
            for handle in part.attach_handles
            if handle.is_missing and handle.is_host_prepared and handle.arq_id is not None}


def emptied(rows: Iterable[Device]) -> list[Deployable]:
    """Programmable deployables of which requests hold a part, and whose image is not known."""
    return [part for device in rows if not device.is_missing for part in device.deployables
            if part.is_programmable and part.bitstream_id is None
            and any(handle.arq_id is not None for handle in part.attach_handles)]


# -- what Placement should show ----------------------------------------------------------------


class Opened:
    """What a host has still to do, as far as its inventory depends on that."""

    def __init__(self, opened: Iterable[tasks.Open], is_restarted: bool = False) -> None:
        opened = list(opened)
        #: the agent has just started, perhaps because its host was switched on
        self.is_restarted = is_restarted
        #: deployables, by uuid, into which an image is being loaded
        self.programmed = {task.deployable_uuid for task in opened
                           if task.kind == TaskKind.PROGRAM}
        #: handles, by uuid, that the host failed to release or to clean
        self.failed = {task.handle_uuid for task in opened
                       if task.attempts and task.kind in tasks.HAND_BACK}

    def is_programming(self, row: Deployable) -> bool:
        """Is an image being loaded into it, or into what it is a part of?"""
        return row.uuid in self.programmed or (
            row.parent is not None and self.is_programming(row.parent))


def providers(session: Session, hostname: str,
              rows: Iterable[Device]) -> list[objects.Provider]:
    """The provider tree of a host, parents before children."""
    opened = Opened(tasks.of_host(session, hostname))
    return [_provider(part, device, opened) for device in rows
            for part in sorted(device.deployables, key=_depth)]


def _depth(row: Deployable) -> int:
    return 0 if row.parent is None else 1 + _depth(row.parent)


def _provider(row: Deployable, device: Device, opened: Opened) -> objects.Provider:
    total = len(row.attach_handles)
    is_held_back = (device.is_missing or device.fault is not None
                    or opened.is_programming(row)
                    or device.status == objects.DeviceStatus.MAINTAINING)
    # a handle that could not be cleaned is not to be had, whatever Placement's allocations say
    lost = sum(1 for handle in row.attach_handles
               if handle.is_missing or handle.withheld == Withheld.QUARANTINED
               or handle.arq_id is None and handle.uuid in opened.failed)
    return objects.Provider(
        uuid=row.rp_uuid, name=row.name,
        parent_uuid=row.parent.rp_uuid if row.parent else None,
        resource_class=attributes.resource_class(row.attributes),
        total=total, reserved=total if is_held_back else min(
            total, lost + attributes.reserved(row.attributes)),
        traits=attributes.traits(row.attributes))
