# SPDX-License-Identifier: Apache-2.0
"""Rows that were imported from the database of another service, until drivers report them.

An imported device has keys of its own, since the other service does not know those of our
drivers. Here it gets the keys under which a driver reports it. It is recognized by the PCI
addresses of its control path and of its handles. Its uuids, those of its providers and the
requests that hold its handles stay.

The other service may divide a card in another way: into one provider for each virtual function,
for instance. Such parts stay as long as requests hold them, since servers have allocations of
their providers. The handles that are held there are left out of the parts that drivers report.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from oslo_log import log

from cyborg import objects
from cyborg.db.sqlalchemy import devices, imported_rows, models
from cyborg.db.sqlalchemy.engine import Session
from cyborg.objects import HandleType

LOG = log.getLogger(__name__)

Device = models.Device
Deployable = models.Deployable
Handle = models.AttachHandle

#: domain, bus, device and function
Address = tuple[int, int, int, int]
#: the place of a handle: its type, address and vGPU type; equal for handles of the same place
Place = tuple[str, Address, str]

#: keys of imported rows begin with this, and those of drivers do not
PREFIX = 'imported:'
NOT_REPORTED = (
    'It was imported from another service, and no driver has reported it since: enable its driver '
    'on this host, or put the card back.'
)
#: the longest name of a provider in Placement
LONGEST_NAME = 200


def match(session: Session, report: objects.Report) -> None:
    """Give the imported rows of a host the keys under which its drivers report them."""
    if not imported_rows.are_on(session, report.hostname):
        return
    rows = devices.load(session, report.hostname)
    for device in report.devices:
        found = [row for row in rows if row.is_imported and _is_same(row, device)]
        if found and (row := _choose(session, rows, found, device)) is not None:
            _merge(session, row, [other for other in found if other is not row])
            session.flush()  # deletes rows before the others take their names
            rows = [each for each in rows if each is row or each not in found]
            _recognize(row, device)
            session.flush()
            LOG.info(
                'Device %s on %s is the imported device %s.', device.key, row.hostname, row.uuid
            )
    for row in [row for row in rows if row.is_imported and _is_replaced(row, report)]:
        LOG.warning(
            'Another card is in the slot of imported device %s on %s; no request holds that '
            'device, so it is deleted.',
            row.uuid,
            row.hostname,
        )
        session.delete(row)
        rows.remove(row)
    by_key = {row.key: row for row in rows}
    for device in report.devices:
        if (known := by_key.get(device.key)) is not None:
            _keep_parts(known, device)
    session.flush()


# -- which device is which ---------------------------------------------------------------------


def _is_same(row: Device, device: objects.Device) -> bool:
    """Returns whether a reported device is this imported device. Two cards that were in the same
    slot one after the other differ in their ids."""
    theirs = set(addresses(path.info for path in row.control_paths))
    ours = set(addresses(path.info for path in device.control_paths))
    if theirs & ours:
        return _are_compatible(row, device)
    return bool(set(_places(row.deployables)) & set(_places(device.deployables)))


def _is_replaced(row: Device, report: objects.Report) -> bool:
    """Returns whether another card is in the slot of an imported device that no request holds."""
    if any(not handle.is_unused for part in row.deployables for handle in part.attach_handles):
        return False
    theirs = set(addresses(path.info for path in row.control_paths))
    return any(
        theirs.intersection(addresses(path.info for path in device.control_paths))
        for device in report.devices
    )


def _are_compatible(row: Device, device: objects.Device) -> bool:
    known = (row.vendor, row.std_board_info.get('product_id'))
    found = (device.vendor, device.given('std_board_info', {}).get('product_id'))
    return all(
        _digits(one) == _digits(other)
        for one, other in zip(known, found, strict=True)
        if one and other and _is_id(one) and _is_id(other)
    )


def _is_id(text: str) -> bool:
    return len(_digits(text)) == 4 and all(each in '0123456789abcdef' for each in _digits(text))


def _digits(text: str) -> str:
    return text.strip().lower().removeprefix('0x')


def _choose(
    session: Session, rows: list[Device], found: Sequence[Device], device: objects.Device
) -> Device | None:
    """Returns the row that becomes the reported device: the one with its control path, else the
    oldest. A row that an earlier report has made is deleted, unless requests hold a part of it."""
    present = next((row for row in rows if row.key == device.key), None)
    if present is not None:
        if not all(
            handle.is_unused for part in present.deployables for handle in part.attach_handles
        ):
            LOG.warning(
                'Device %s on %s was imported as %s, but new requests hold parts of it: the '
                'imported device is not merged with it until these are deleted.',
                device.key,
                device.hostname,
                ', '.join(row.uuid for row in found),
            )
            return None
        session.delete(present)
        rows.remove(present)
    ours = set(addresses(path.info for path in device.control_paths))
    return min(
        found,
        key=lambda row: (
            not ours.intersection(addresses(p.info for p in row.control_paths)),
            row.id,
        ),
    )


def _merge(session: Session, row: Device, others: Iterable[Device]) -> None:
    """Move the parts of other rows of the same card to this one."""
    for other in others:
        names = {part.name for part in row.deployables}
        for part in list(other.deployables):
            if part.name in names:
                part.name = f'{part.name[: LONGEST_NAME - 37]} {part.uuid}'
            row.deployables.append(part)
        session.delete(other)


# -- which part is which -----------------------------------------------------------------------


def _recognize(row: Device, device: objects.Device) -> None:
    """Give a row, its deployables and its handles the keys of the report."""
    row.key, row.is_imported = device.key, False
    taken: set[str] = set()
    for part, reported in _pairs(row, device):
        taken.add(reported.name)
        part.name = reported.name
        _recognize_handles(part, reported)
    for part in row.deployables:
        if not part.is_imported:
            continue
        lost = [each for each in part.attach_handles if each.key.startswith(PREFIX)]
        present = set(_places(device.deployables))
        for handle in lost:
            if _place(handle) not in present and not handle.is_unused:
                LOG.warning(
                    'No driver of %s reports handle %s, which was imported with the request that '
                    'holds it: the request keeps it, and it is not offered afterwards.',
                    row.hostname,
                    handle.uuid,
                )


def _pairs(row: Device, device: objects.Device) -> Iterator[tuple[Deployable, objects.Deployable]]:
    """Yields pairs of deployables and reported deployables that are the same: those of the same
    name, then those that share places with each other, and with no other deployable."""
    rest = list(device.deployables)
    parts = list(row.deployables)
    for part in list(parts):
        same = next((each for each in rest if each.name.casefold() == part.name.casefold()), None)
        if same is not None:
            rest.remove(same)
            parts.remove(part)
            yield part, same
    for part in parts:
        sharing = [each for each in rest if set(_places([each])) & set(_places([part]))]
        if len(sharing) == 1 and not any(
            set(_places([other])) & set(_places(sharing)) for other in parts if other is not part
        ):
            yield part, sharing[0]


def _recognize_handles(part: Deployable, reported: objects.Deployable) -> None:
    """Give handles the keys of the reported ones at the same place. Several handles may have the
    same place, as the vGPUs of a card do: they are matched by their marks, else in order, first
    those that are in use."""
    free = {handle.key: handle for handle in reported.attach_handles}
    for handle in part.attach_handles:
        free.pop(handle.key, None)
    rows = [handle for handle in part.attach_handles if handle.key.startswith(PREFIX)]
    for is_same in (_is_same_mark, _is_same_place):
        for handle in sorted(rows, key=lambda each: (each.is_unused, each.id)):
            key = next((key for key, each in free.items() if is_same(handle, each)), None)
            if key is not None and handle.key.startswith(PREFIX):
                handle.key = key
                del free[key]


def _is_same_mark(handle: Handle, reported: objects.AttachHandle) -> bool:
    return _is_same_place(handle, reported) and handle.info.get('vgpu_mark') == reported.info.get(
        'vgpu_mark'
    )


def _is_same_place(handle: Handle, reported: objects.AttachHandle) -> bool:
    place = _place(handle)
    return place is not None and place == _place(reported)


def at_place(device: Device, wanted: objects.AttachHandle) -> list[Handle]:
    """Returns the handles of a device at a place: first those that are unused, and of these first
    one with the wanted mark."""
    here = [
        handle
        for part in device.deployables
        for handle in part.attach_handles
        if _is_same_place(handle, wanted)
    ]
    return sorted(
        here, key=lambda each: (not each.is_unused, not _is_same_mark(each, wanted), each.key)
    )


# -- parts that drivers divide in another way --------------------------------------------------


def _keep_parts(row: Device, device: objects.Device) -> None:
    """Put the imported parts that requests hold into a report, as they are."""
    names = {part.name: part for part in device.deployables}
    for part in row.deployables:
        if not part.is_imported:
            continue
        held = [handle for handle in part.attach_handles if not handle.is_unused]
        if not held:
            part.is_imported = False  # from now on reports describe it
        elif (reported := names.get(part.name)) is not None:
            reported.resource_class = part.resource_class or reported.resource_class
        else:
            moved = list(_moved(held, device.deployables))
            if moved:
                device.deployables.append(_as_reported(part, moved))


def _moved(
    held: Iterable[Handle], parts: Iterable[objects.Deployable]
) -> Iterator[objects.AttachHandle]:
    """Remove handles from reported deployables that requests hold in other parts, and yield them
    with the keys of their rows."""
    parts = list(parts)
    for handle in held:
        for part in parts:
            same = next(
                (each for each in part.attach_handles if _is_same_place(handle, each)), None
            )
            if same is not None:
                part.attach_handles.remove(same)
                same.key = handle.key
                yield same
                break


def _as_reported(part: Deployable, handles: Sequence[objects.AttachHandle]) -> objects.Deployable:
    return objects.Deployable(
        name=part.name,
        rp_uuid=part.rp_uuid,
        driver_name=part.driver_name,
        resource_class=part.resource_class,
        traits=part.traits,
        num_accelerators=len(handles),
        attach_handles=list(handles),
    )


# -- places ------------------------------------------------------------------------------------


def _places(parts: Iterable[Deployable] | Iterable[objects.Deployable]) -> Iterator[Place]:
    for part in parts:
        for handle in part.attach_handles:
            if (place := _place(handle)) is not None:
                yield place


def _place(handle: Handle | objects.AttachHandle) -> Place | None:
    for address in addresses([handle.info]):
        kind = handle.info.get('asked_type', '') if handle.type == HandleType.MDEV else ''
        return str(handle.type), address, kind
    return None


def addresses(infos: Iterable[Mapping[str, str]]) -> Iterator[Address]:
    """Yields the PCI addresses in these attach infos. Another service may omit leading zeros."""
    for info in infos:
        try:
            domain, bus, device, function = (
                int(info[name], 16) for name in ('domain', 'bus', 'device', 'function')
            )
        except (KeyError, ValueError):
            continue
        yield domain, bus, device, function
