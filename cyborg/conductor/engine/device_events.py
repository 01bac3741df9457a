# SPDX-License-Identifier: Apache-2.0
"""Device events: which devices appear, fail, recover or are removed by a report, and which an
operator disables."""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from oslo_log import log

from cyborg import objects
from cyborg.conductor.engine.changes import Change
from cyborg.db.sqlalchemy import arqs, models
from cyborg.db.sqlalchemy.engine import Session

Device = models.Device
#: the fields of a device that its events have
FACTS = (
    'hostname',
    'key',
    'type',
    'vendor',
    'model',
    'driver_name',
    'status',
    'is_missing',
    'fault',
)


class Kind(StrEnum):
    """The kind of a device event."""

    ADDED = 'added'
    FAILED = 'failed'
    RECOVERED = 'recovered'
    REMOVED = 'removed'
    ENABLED = 'enabled'
    DISABLED = 'disabled'


class Conditions:
    """The health of the devices of a host before a report, to be compared with that after it."""

    def __init__(self, rows: Iterable[Device]) -> None:
        self._before = {row: _trouble(row) for row in rows}

    def compare(self, session: Session, rows: Iterable[Device]) -> Iterator[Change]:
        """Yield the changes. A fault whose reason has changed is a new failure."""
        after = {row: _trouble(row) for row in rows}
        for row, trouble in after.items():
            if row not in self._before:
                yield _event(session, Kind.ADDED, row)
            if trouble and trouble != self._before.get(row):
                yield _event(session, Kind.FAILED, row)
            elif self._before.get(row) and not trouble:
                yield _event(session, Kind.RECOVERED, row)
        for row in self._before:
            if row not in after:
                yield _event(session, Kind.REMOVED, row)


def _trouble(row: Device) -> tuple[bool, str | None] | None:
    return (row.is_missing, row.fault) if row.is_missing or row.fault is not None else None


def _event(session: Session, kind: Kind, row: Device) -> Change:
    holders = [
        handle.arq_id
        for part in row.deployables
        for handle in part.attach_handles
        if handle.arq_id is not None
    ]
    return _change(kind, row, arqs.servers_holding(session, holders))


def of_status(session: Session, row: Device) -> Change:
    """Returns the change of a device that an operator has enabled or disabled."""
    is_enabled = row.status == objects.DeviceStatus.ENABLED
    return _change(
        Kind.ENABLED if is_enabled else Kind.DISABLED, row, arqs.servers_on_device(session, row.id)
    )


def of_failure(session: Session, row: Device) -> Change:
    """Returns the change of a device that has a fault before its host reports it."""
    return _change(Kind.FAILED, row, arqs.servers_on_device(session, row.id))


def _change(kind: Kind, row: Device, servers: Collection[str]) -> Change:
    facts = {name: getattr(row, name) for name in FACTS} | {'instance_uuids': sorted(servers)}
    level = log.WARNING if kind is Kind.FAILED else log.INFO
    return Change(f'device.{kind}', row.uuid, facts, level)
