# SPDX-License-Identifier: Apache-2.0
"""A host's devices as one picture: taking a report in, and telling what Placement should show.

A report is a keyed set difference against the rows, never a guess: devices by their key,
deployables by name, handles by key.
"""

import uuid
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from oslo_log import log
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import attributes, models, notices
from cyborg.db.sqlalchemy.ledger import Ledger

LOG = log.getLogger(__name__)

Device, Deployable, Handle = models.Device, models.Deployable, models.AttachHandle

DEVICE_FACTS = ('type', 'vendor', 'model', 'driver_name', 'std_board_info',
                'vendor_board_info', 'fault')
DEPLOYABLE_FACTS = ('rp_uuid', 'driver_name', 'is_programmable')
#: a server may start again that holds what is not there now
HELD_OTHERWISE = ('A request holds the card whole while it has parts, or parts of it while it is '
                  'whole: it is offered again when that request is gone.')
HANDLE_FACTS = ('type', 'info', 'is_host_prepared')


def load(session: orm.Session, hostname: str) -> list[Device]:
    """All devices of a host with all their parts, in as many queries as there are tables."""
    deployables = orm.selectinload(Device.deployables)
    return list(session.scalars(
        sa.select(Device).where(Device.hostname == hostname).order_by(Device.id)
        .options(orm.selectinload(Device.control_paths),
                 deployables.selectinload(Deployable.attributes),
                 deployables.selectinload(Deployable.attach_handles))))


def reconcile(ledger: Ledger, report: objects.Report) -> list[Device]:
    """Make the rows of a host what its report says; answers the rows that are left.

    A driver that failed has said nothing, so its devices stay as they are. What vanished while
    somebody holds a part of it stays too, marked as missing, until it is let go.
    """
    session = ledger.session
    rows = {row.key: row for row in load(session, report.hostname)}
    conditions = notices.Conditions(rows.values())
    silent = {driver.name for driver in report.drivers
              if driver.status != objects.DriverStatus.OK}
    gone = [row for key, row in rows.items()
            if key not in {device.key for device in report.devices}
            and row.driver_name not in silent]
    for row in gone:
        held = [part for part in row.deployables if _remove(part)]
        if held:
            _set(row, is_missing=True)
        else:
            session.delete(rows.pop(row.key))
    session.flush()  # before anything new comes in the place of what went
    taken = {part.rp_uuid for row in rows.values() for part in row.deployables}
    for device in report.devices:
        row = rows.get(device.key)
        if row is None:
            if taken & {part.rp_uuid for part in device.deployables}:
                LOG.warning('Device %s on %s sits where another one is still in use; it waits '
                            'until that one is free.', device.key, report.hostname)
                continue
            row = rows[device.key] = Device(hostname=report.hostname, key=device.key)
            session.add(row)
        _update_device(row, device)
    session.flush()
    ledger.notices += conditions.compare(session, rows.values())
    return list(rows.values())


def _set(row: models.Base, **values: object) -> None:
    """Assign what differs, so that an unchanged row costs no statement."""
    for name, value in values.items():
        if getattr(row, name) != value:
            setattr(row, name, value)


def _facts(source: objects.CyborgObject, names: Iterable[str]) -> dict[str, object]:
    return {name: source.given(name) for name in names}


def _update_device(row: Device, device: objects.Device) -> None:
    _set(row, is_missing=False, **_facts(device, DEVICE_FACTS))
    paths = [(path.type, path.info) for path in device.control_paths]
    if [(path.type, path.info) for path in row.control_paths] != paths:
        row.control_paths = [models.ControlPath(type=type, info=info) for type, info in paths]
    if device.given('doubt') and _lost(row, device):
        _set(row, fault=device.fault or device.doubt)
        return
    parts = {part.name: part for part in row.deployables}
    for deployable in device.deployables:
        part = parts.pop(deployable.name, None)
        if part is None:
            part = Deployable(name=deployable.name)
            row.deployables.append(part)
        _update_deployable(part, deployable)
    by_name = {part.name: part for part in row.deployables}
    for deployable in device.deployables:
        part = by_name[deployable.name]
        _set(part, parent=by_name.get(deployable.parent_name),
             root=_root(deployable, by_name, device))
    for part in row.deployables:
        for handle in part.attach_handles:  # one that is new came while it was programmed
            _set(handle, is_programming=is_programming(part))
    for part in parts.values():
        if not _remove(part):
            row.deployables.remove(part)
    if row.fault is None and _is_held_otherwise(row):
        _set(row, fault=HELD_OTHERWISE)


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
    while parents.get(name) in rows:
        name = parents[name]
    return None if name == deployable.name else rows[name]


def _update_deployable(row: Deployable, deployable: objects.Deployable) -> None:
    handles = {handle.key: handle for handle in row.attach_handles}
    for handle in deployable.attach_handles:
        mine = handles.pop(handle.key, None)
        if mine is None:
            # derived, so that a card which comes back finds what was left of its handles
            derived = uuid.uuid5(uuid.UUID(deployable.rp_uuid), handle.key)
            mine = Handle(key=handle.key, uuid=str(derived))
            row.attach_handles.append(mine)
        _set(mine, is_missing=_is_taken(mine, handle.occupant), **_facts(handle, HANDLE_FACTS))
    _remove_handles(row, list(handles.values()))
    _set(row, num_accelerators=len(row.attach_handles),
         **_facts(deployable, DEPLOYABLE_FACTS))
    _update_bitstream(row, deployable)
    if row.attach_handles and deployable.resource_class is None:
        # what is held still counts as what it was: the card may be seen half gone
        deployable.resource_class = attributes.resource_class(row.attributes)
    attributes.update(row, attributes.told(deployable))


def _update_bitstream(row: Deployable, deployable: objects.Deployable) -> None:
    """Forget the image when the hardware shows that another one was loaded since: by somebody
    else, or by the card itself when the host was switched on."""
    content = deployable.given('content', {})
    if deployable.bitstream_id:
        _set(row, bitstream_id=deployable.bitstream_id, bitstream_content=content)
    elif row.bitstream_id and row.program_image is None:
        known = row.bitstream_content or {}
        if all(known.get(name, value) == value for name, value in content.items()):
            _set(row, bitstream_content=known | content)
        else:
            _set(row, bitstream_id=None, bitstream_content=None)


def _is_taken(handle: Handle, occupant: str | None) -> bool:
    """Does somebody else have it, who never asked us?"""
    return (occupant not in (None, handle.uuid) and handle.arq_id is None
            and handle.cleanup_since is None)


def _remove(row: Deployable) -> bool:
    """Drop the handles nobody holds; True if some are held or the host is not done with it, so
    that it must stay."""
    _remove_handles(row, list(row.attach_handles))
    return bool(row.attach_handles) or row.program_image is not None


def _remove_handles(row: Deployable, handles: Sequence[Handle]) -> None:
    lock([handle for handle in handles if _is_unused(handle)])
    for handle in handles:
        if _is_unused(handle):
            row.attach_handles.remove(handle)
        else:
            _set(handle, is_missing=True)


def _is_unused(handle: Handle) -> bool:
    return (handle.arq_id is None and handle.cleanup_since is None
            and not handle.is_programming)


def lock(handles: Sequence[Handle]) -> None:
    """See them as they are now, until we are done: somebody may have taken one since they were
    read."""
    if not handles:
        return
    session = orm.object_session(handles[0])
    with session.no_autoflush:
        session.scalars(
            sa.select(Handle).where(Handle.id.in_([handle.id for handle in handles]))
            .order_by(Handle.id).with_for_update()
            .execution_options(populate_existing=True)).all()


def providers(devices: Iterable[Device]) -> list[objects.Provider]:
    """The provider tree of a host, parents before children."""
    return [_provider(part, device) for device in devices
            for part in sorted(device.deployables, key=_depth)]


def _depth(row: Deployable) -> int:
    return 0 if row.parent is None else 1 + _depth(row.parent)


def is_programming(row: Deployable) -> bool:
    """Is it, or what it is a part of, being programmed?"""
    return row.program_image is not None or (
        row.parent is not None and is_programming(row.parent))


def _provider(row: Deployable, device: Device) -> objects.Provider:
    total = len(row.attach_handles)
    is_held_back = (device.is_missing or device.fault is not None or is_programming(row)
                    or device.status == objects.DeviceStatus.MAINTAINING)
    # a handle that could not be cleaned is not to be had, whatever Placement's allocations say
    lost = sum(1 for handle in row.attach_handles if handle.is_missing
               or handle.work_error and handle.arq_id is None)
    return objects.Provider(
        uuid=row.rp_uuid, name=row.name,
        parent_uuid=row.parent.rp_uuid if row.parent else None,
        resource_class=attributes.resource_class(row.attributes),
        total=total, reserved=total if is_held_back else min(
            total, lost + attributes.reserved(row.attributes)),
        traits=attributes.traits(row.attributes))
