# SPDX-License-Identifier: Apache-2.0
"""Devices in SQL."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging

Device = models.Device
NOT_SHOWN = {'deployables', 'control_paths', 'doubt'}  #: with the device itself
#: named as the fields of objects.Device
SHOWN = [getattr(Device, name) for name in objects.Device.fields.keys() - NOT_SHOWN]
FILTERS = {name: getattr(Device, name) for name in
           ('uuid', 'hostname', 'type', 'vendor', 'model', 'driver_name', 'status',
            'is_missing')}


def find(session: orm.Session, filters: paging.Filters,
         page: paging.Page) -> list[objects.Device]:
    """Those that match, a page of them, without their parts."""
    query = paging.page_of(session, sa.select(*SHOWN), Device, FILTERS, filters, page)
    return [objects.Device.of(row, deployables=[], control_paths=[])
            for row in session.execute(query)]


def get(session: orm.Session, uuid: str) -> objects.Device:
    """One device, without its parts."""
    found = find(session, {'uuid': uuid}, {})
    if not found:
        raise errors.DeviceNotFound(uuid=uuid)
    return found[0]


def set_status(session: orm.Session, uuid: str, status: str) -> str:
    """Enable it or keep it back; answers the host, whose providers must be redone."""
    hostname = session.scalar(sa.select(Device.hostname).where(Device.uuid == uuid))
    if hostname is None:
        raise errors.DeviceNotFound(uuid=uuid)
    session.execute(sa.update(Device).where(Device.uuid == uuid).values(status=status))
    return hostname


def are_on(session: orm.Session, hostname: str) -> bool:
    """Returns whether a host has devices."""
    return session.scalar(
        sa.select(Device.id).where(Device.hostname == hostname).limit(1)) is not None


def delete(session: orm.Session, devices: Iterable[Device]) -> None:
    """Delete devices with all their parts."""
    for device in devices:
        session.delete(device)


def load(session: orm.Session, hostname: str) -> list[Device]:
    """All devices of a host with all their parts, in as many queries as there are tables."""
    parts, part = orm.selectinload(Device.deployables), models.Deployable
    return list(session.scalars(
        sa.select(Device).where(Device.hostname == hostname).order_by(Device.id)
        .options(orm.selectinload(Device.control_paths),
                 parts.selectinload(part.attributes),
                 parts.selectinload(part.attach_handles))))


def divided(session: orm.Session, hostname: str) -> list[models.DividedCard]:
    """Cards that were given out by their virtual functions when they left a host."""
    return list(session.scalars(sa.select(models.DividedCard).where(
        models.DividedCard.hostname == hostname)))


def forget_divided(session: orm.Session, hostname: str, key: str | None = None) -> None:
    """Forget such a card, or all of a host."""
    query = sa.delete(models.DividedCard).where(models.DividedCard.hostname == hostname)
    session.execute(query if key is None else query.where(models.DividedCard.key == key))
