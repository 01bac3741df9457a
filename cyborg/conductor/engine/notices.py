# SPDX-License-Identifier: Apache-2.0
"""What a report changes in the condition of devices: who fails, recovers, or goes as a failure."""

import dataclasses
from collections.abc import Iterable, Iterator
from enum import StrEnum

from cyborg.db.sqlalchemy import arqs, models
from cyborg.db.sqlalchemy.engine import Session

Device = models.Device
#: of a device, for whoever listens
FACTS = ('uuid', 'hostname', 'key', 'type', 'vendor', 'model', 'driver_name', 'status',
         'is_missing', 'fault')


class Kind(StrEnum):
    """What became of a device."""

    FAILED = 'failed'
    RECOVERED = 'recovered'
    REMOVED = 'removed'


@dataclasses.dataclass(frozen=True)
class Notice:
    """One such change, told as plain values: the row may be gone when it is sent."""

    kind: Kind
    facts: dict[str, object]


class Conditions:
    """How the devices of a host were, to be compared with how they are."""

    def __init__(self, rows: Iterable[Device]) -> None:
        self._before = {row: _trouble(row) for row in rows}

    def compare(self, session: Session, rows: Iterable[Device]) -> Iterator[Notice]:
        """Tell the changes. A failure that is another one than before is told again."""
        after = {row: _trouble(row) for row in rows}
        for row, trouble in after.items():
            if trouble and trouble != self._before.get(row):
                yield _notice(session, Kind.FAILED, row)
            elif self._before.get(row) and not trouble:
                yield _notice(session, Kind.RECOVERED, row)
        for row, trouble in self._before.items():
            if trouble and row not in after:
                yield _notice(session, Kind.REMOVED, row)


def _trouble(row: Device) -> tuple[bool, str | None] | None:
    return (row.is_missing, row.fault) if row.is_missing or row.fault is not None else None


def _notice(session: Session, kind: Kind, row: Device) -> Notice:
    holders = [handle.arq_id for part in row.deployables for handle in part.attach_handles
               if handle.arq_id is not None]
    servers = arqs.servers_holding(session, holders)
    return Notice(kind, {name: getattr(row, name) for name in FACTS} | {
        'instance_uuids': sorted(servers)})
