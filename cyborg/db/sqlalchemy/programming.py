# SPDX-License-Identifier: Apache-2.0
"""How a deployable comes to hold another image: what is to be done, and how that ended.

Who programs and who binds meet at the handles: either takes all it needs of them in one
compare-and-set, so that nobody gets a handle of what is being programmed.
"""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import attach_handles, attributes, models
from cyborg.db.sqlalchemy.ledger import Ledger

Deployable, Device, Handle = models.Deployable, models.Device, models.AttachHandle

REGION_TYPE = 'region_type_uuid'
NOTHING = {'program_image': None, 'program_since': None, 'program_request_id': None}


def start(ledger: Ledger, uuid: str, image_uuid: str, request_id: str | None) -> None:
    """Have a host load an image; the same one again joins what is under way."""
    session = ledger.session
    row = _locked(session, Deployable.uuid == uuid)
    if row is None:
        raise errors.DeployableNotFound(uuid=uuid)
    if row.program_image != image_uuid:
        if why := _refusal(row):
            raise errors.CannotProgram(uuid=uuid, why=why)
        _take_handles(session, row)
        row.program_image, row.program_since = image_uuid, models.now()
        row.program_request_id, row.program_error = request_id, None
        row.program_turn += 1
        session.flush()
    ledger.stale_hosts.add(row.device.hostname)


def _locked(session: orm.Session, *where: sa.ColumnElement[bool]) -> Deployable | None:
    """A row that nobody else changes before we are done."""
    return session.scalar(sa.select(Deployable).where(*where).with_for_update())


def _refusal(row: Deployable) -> str | None:
    if row.device.is_missing:
        return 'its device is gone from the host.'
    if row.device.status != objects.DeviceStatus.ENABLED:
        return 'its device is disabled; enable it first.'
    if not row.is_programmable:
        return f'driver {row.device.driver_name} cannot load images into it.'
    if row.program_image is not None:
        return f'image {row.program_image} is being loaded into it; wait until that has ended.'
    return None


def _take_handles(session: orm.Session, row: Deployable) -> None:
    """Have all handles at and below a deployable, or CannotProgram."""
    is_ours = Handle.deployable_id.in_(_at_and_below(session, row))
    taken = session.execute(
        sa.update(Handle).where(is_ours, attach_handles.IS_FREE).values(is_programming=True),
        execution_options={'synchronize_session': False})
    handles = session.execute(
        sa.select(Handle, models.ExtArq.uuid).outerjoin(Handle.arq).where(is_ours)
        .order_by(Handle.id)).all()
    if taken.rowcount != len(handles):
        used = filter(None, (_use(handle, arq) for handle, arq in handles))
        raise errors.CannotProgram(
            uuid=row.uuid, why=next(used, 'what it is a part of is being programmed.'))


def _use(handle: Handle, arq: str | None) -> str | None:
    """Why a handle is not free, unless that is because of us."""
    if arq is not None:
        return f'accelerator request {arq} has a part of it; unbind that first.'
    if handle.cleanup_since is not None:
        return 'its host has not cleaned up yet after whoever had it last.'
    if handle.is_missing:
        return 'a part of it is gone, or used by somebody who never asked for it here.'
    return None


def _at_and_below(session: orm.Session, row: Deployable) -> set[int]:
    """The deployable and all that are parts of it."""
    parts = session.execute(sa.select(Deployable.id, Deployable.parent_id).where(
        Deployable.device_id == row.device_id)).all()
    found = {row.id}
    while below := {part.id for part in parts if part.parent_id in found} - found:
        found |= below
    return found


def finish(ledger: Ledger, hostname: str, outcome: objects.Programmed) -> None:
    """A host tells how it went; what it says of an earlier turn comes too late."""
    session = ledger.session
    row = _locked(session, Deployable.uuid == outcome.deployable_uuid,
                  Deployable.program_turn == outcome.turn,
                  Deployable.program_image.is_not(None))
    if row is None or row.device.hostname != hostname:
        return
    if outcome.error is None:
        row.bitstream_id = row.program_image
    elif outcome.is_touched:
        row.bitstream_id = None  # nobody knows what is in it now
    if outcome.is_touched:
        row.bitstream_content = None
    row.program_error = outcome.error
    for name, value in NOTHING.items():
        setattr(row, name, value)
    session.execute(
        sa.update(Handle).where(Handle.deployable_id.in_(_at_and_below(session, row)))
        .values(is_programming=False), execution_options={'synchronize_session': False})
    # what it does now, its driver tells
    ledger.stale_hosts.add(hostname)


def pending(session: orm.Session, hostname: str) -> list[objects.Programming]:
    """All that the host has still to load, whatever got lost on the way."""
    rows = session.scalars(
        sa.select(Deployable).join(Deployable.device)
        .where(Device.hostname == hostname, Deployable.program_image.is_not(None))
        .options(orm.contains_eager(Deployable.device),
                 orm.selectinload(Deployable.attributes)).order_by(Deployable.id))
    return [_programming(row, row.device) for row in rows]


def _programming(row: Deployable, device: Device) -> objects.Programming:
    """What the host is to do."""
    boards = [device.model, device.std_board_info.get('product_id')]
    return objects.Programming(
        image_uuid=row.program_image, deployable_uuid=row.uuid, turn=row.program_turn,
        driver_name=device.driver_name, device_key=device.key, deployable_name=row.name,
        vendor=device.vendor, boards=[board for board in boards if board],
        region_types=attributes.values(row.attributes, REGION_TYPE),
        request_id=row.program_request_id)


def owing_hosts(session: orm.Session, since: datetime.datetime,
                silent_since: datetime.datetime) -> list[str]:
    """Hosts whose agent lives and has had something to load for longer than that."""
    return list(session.scalars(
        sa.select(Device.hostname).distinct().join(Device.deployables)
        .join(models.Agent, models.Agent.hostname == Device.hostname)
        .where(Deployable.program_since < since, models.Agent.last_heartbeat >= silent_since)))
