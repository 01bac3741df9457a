# SPDX-License-Identifier: Apache-2.0
"""Devices in SQL."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging

Device = models.Device
#: fields of objects.Device that a query for devices does not return
NOT_SHOWN = {'deployables', 'control_paths', 'fault_if_changed'}
#: named as the fields of objects.Device
SHOWN = [getattr(Device, name) for name in objects.Device.fields.keys() - NOT_SHOWN]
FILTERS = {
    name: getattr(Device, name)
    for name in (
        'uuid',
        'hostname',
        'type',
        'vendor',
        'model',
        'driver_name',
        'status',
        'is_missing',
    )
}


def find(session: orm.Session, filters: paging.Filters, page: paging.Page) -> list[objects.Device]:
    """Returns one page of the devices that match, without their deployables."""
    query = paging.page_of(session, sa.select(*SHOWN), Device, FILTERS, filters, page)
    return [
        objects.Device.of(row, deployables=[], control_paths=[]) for row in session.execute(query)
    ]


def get(session: orm.Session, uuid: str) -> objects.Device:
    """Returns one device, without its deployables."""
    found = find(session, {'uuid': uuid}, {})
    if not found:
        raise errors.DeviceNotFound(uuid=uuid)
    return found[0]


def locked(session: orm.Session, uuid: str) -> Device:
    """Returns the row of a device, locked."""
    row = session.scalar(sa.select(Device).where(Device.uuid == uuid).with_for_update())
    if row is None:
        raise errors.DeviceNotFound(uuid=uuid)
    return row


def are_on(session: orm.Session, hostname: str) -> bool:
    """Returns whether a host has devices."""
    return (
        session.scalar(sa.select(Device.id).where(Device.hostname == hostname).limit(1)) is not None
    )


def delete(session: orm.Session, devices: Iterable[Device]) -> None:
    """Delete devices with their deployables."""
    for device in devices:
        session.delete(device)


def load(session: orm.Session, hostname: str) -> list[Device]:
    """Returns all devices of a host with all their parts, with one query per table."""
    parts, part = orm.selectinload(Device.deployables), models.Deployable
    return list(
        session.scalars(
            sa.select(Device)
            .where(Device.hostname == hostname)
            .order_by(Device.id)
            .options(
                orm.selectinload(Device.control_paths),
                parts.selectinload(part.attributes),
                parts.selectinload(part.attach_handles),
            )
        )
    )


def divided(session: orm.Session, hostname: str) -> list[models.DividedCard]:
    """Returns the cards of a host that were removed while their virtual functions were offered."""
    return list(
        session.scalars(
            sa.select(models.DividedCard).where(models.DividedCard.hostname == hostname)
        )
    )


def forget_divided(session: orm.Session, hostname: str, key: str | None = None) -> None:
    """Delete the record of such a card, or all of them on a host."""
    query = sa.delete(models.DividedCard).where(models.DividedCard.hostname == hostname)
    session.execute(query if key is None else query.where(models.DividedCard.key == key))
