# SPDX-License-Identifier: Apache-2.0
"""Units in SQL: how many of each deployable are held, withheld and free.

The number of statements does not depend on the number of hosts.
"""

import dataclasses
import datetime
import functools
import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import os_traits
import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import attach_handles, models, tasks
from cyborg.objects import TaskState, Withheld

Handle = models.AttachHandle
Deployable = models.Deployable
Device = models.Device
Agent = models.Agent
PARENT = orm.aliased(Deployable)
#: a card is not a region of its regions
_IS_REGION = sa.and_(PARENT.is_programmable, PARENT.parent_id.is_not(None))


@dataclass(frozen=True, slots=True)
class Host:
    """The state of a host as its agent reported it last."""

    last_heartbeat: datetime.datetime
    #: provider name -> who claims it
    conflicts: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A deployable without its names: its conditions, and the numbers of its units by their state.

    Deployables of one answer that are alike have the same Part.
    """

    type: str
    vendor: str
    model: str | None
    resource_class: str
    is_disabled: bool
    #: the agent of its host sends no heartbeats
    is_silent: bool
    #: why its device is not offered: it is missing, or has a fault
    fault: str | None
    total: int
    #: requests hold them
    held: int
    #: neither held nor withheld nor missing
    free: int
    cleaning: int
    programming: int
    quarantined: int
    #: missing, and held by no request: another program uses them
    occupied: int
    #: units that are reserved in Placement: missing, quarantined, or their cleaning failed
    lost: int
    #: units that are reserved in Placement because others use the resources of the card
    reserved: int
    traits: frozenset[str]
    #: who else has a provider of its name in Placement
    claimant: str | None

    @property
    def is_held_back(self) -> bool:
        """All units are reserved in Placement."""
        return self.is_disabled or self.fault is not None or self.programming > 0

    @property
    def usable(self) -> int:
        """Units that can be allocated in Placement, if its inventory is up to date and each request
        has its allocation."""
        reserved = self.total if self.is_held_back else min(self.total, self.lost + self.reserved)
        return max(0, self.total - reserved - self.held)


class Located(NamedTuple):
    """Where a part is."""

    hostname: str
    rp_uuid: str
    part: Part


def _count(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.count(sa.case((sa.and_(*conditions), 1)))  # sums are decimals in MariaDB


#: the fields of Part that count units, in their order
COUNTS = (
    'total',
    'held',
    'free',
    'cleaning',
    'programming',
    'quarantined',
    'occupied',
    'lost',
)
_IS_UNHELD = Handle.arq_id.is_(None)
_COUNTED = (
    sa.select(
        Handle.deployable_id,
        sa.func.count().label('total'),
        sa.func.count(Handle.arq_id).label('held'),
        _count(attach_handles.IS_FREE).label('free'),
        *(
            _count(_IS_UNHELD, Handle.withheld == why).label(why)
            for why in (Withheld.CLEANING, Withheld.PROGRAMMING, Withheld.QUARANTINED)
        ),
        _count(_IS_UNHELD, Handle.withheld.is_(None), Handle.is_missing.is_(True)).label(
            'occupied'
        ),
        _count(sa.or_(Handle.is_missing.is_(True), Handle.withheld == Withheld.QUARANTINED)).label(
            'lost'
        ),
    )
    .group_by(Handle.deployable_id)
    .subquery()
)


def _joined(*numbers: sa.SQLColumnExpression[int]) -> sa.ColumnElement[str]:
    """Returns numbers as one text: PyMySQL reads one column faster than several."""
    first, *others = (sa.cast(each, sa.String(20)) for each in numbers)
    return functools.reduce(lambda text, each: text + ',' + each, others, first)


#: rows to have in memory at a time
BATCH = 500
MISSING = 'The device is gone from the bus.'
#: the deployable with the image, if a deployable is a region or a part of it
_REGION = sa.case((Deployable.is_programmable, Deployable.id), (_IS_REGION, PARENT.id))
#: columns that differ between deployables, then fields of a Part in their order, with one column
#: for all that are numbers
_PARTS = (
    sa.select(
        Device.hostname,
        Deployable.rp_uuid,
        Deployable.name,
        Deployable.id,
        _REGION,
        sa.type_coerce(Agent.conflicts, sa.Text),
        Device.type,
        Device.vendor,
        Device.model,
        Deployable.resource_class,
        sa.or_(
            Device.status == objects.DeviceStatus.MAINTAINING, Agent.disabled_reason.is_not(None)
        ),
        sa.or_(Agent.id.is_(None), Agent.last_heartbeat < sa.bindparam('silent_since')),
        sa.case((Device.is_missing, MISSING), else_=Device.fault),
        _joined(*(_COUNTED.c[name] for name in COUNTS), Deployable.reserved),
        sa.type_coerce(Deployable.traits, sa.Text),
    )
    .join(Device, Deployable.device_id == Device.id)
    .outerjoin(Agent, Agent.hostname == Device.hostname)
    .outerjoin(PARENT, Deployable.parent_id == PARENT.id)
    .join(_COUNTED, _COUNTED.c.deployable_id == Deployable.id)
    .where(Deployable.resource_class.is_not(None))
    .order_by(Deployable.id)
    .execution_options(yield_per=BATCH)
)


# Most hosts of a cloud are alike: few documents are different, and each is read once.


@functools.lru_cache
def _traits(document: str | None) -> frozenset[str]:
    return frozenset((os_traits.OWNER_CYBORG, *json.loads(document or '[]')))


@functools.lru_cache
def _conflicts(document: str | None) -> Mapping[str, str]:
    conflicts: dict[str, str] = json.loads(document or '{}')
    return conflicts


def parts(
    session: orm.Session,
    silent_since: datetime.datetime,
    classes: Collection[str] | None = None,
    hostname: str | None = None,
) -> list[Located]:
    """Returns the deployables that have units of some classes, or of all; those of one host, or of
    all."""
    query = _PARTS
    if classes is not None:
        query = query.where(Deployable.resource_class.in_(classes))
    if hostname is not None:
        query = query.where(Device.hostname == hostname)
    failed, quarantined = _failed(session), _quarantined(session)
    found, made = [], dict[tuple[Any, ...], Part]()
    # by the connection: a session would copy each row
    for row in session.connection().execute(query, {'silent_since': silent_since}):
        host, rp_uuid, name, deployable, region, conflicts = row[:6]
        key = (
            row[6:],
            _conflicts(conflicts).get(name),
            region in quarantined,
            failed.get(deployable, 0),
        )
        part = made.get(key)
        if part is None:
            part = made[key] = _part(*key)
        found.append(Located(host, rp_uuid, part))
    return found


def _part(columns: Sequence[Any], claimant: str | None, is_quarantined: bool, failed: int) -> Part:
    *fields, numbers, traits = columns
    part = Part(*[*fields, *map(int, numbers.split(',')), _traits(traits), claimant])
    # units that are being cleaned in a quarantined region are reserved, too
    lost = part.lost + (part.cleaning if is_quarantined else failed)
    return dataclasses.replace(part, lost=lost)


def _quarantined(session: orm.Session) -> set[int]:
    """Returns the regions that have a quarantined handle which no request holds."""
    query = (
        sa.select(_REGION)
        .join(Handle, Handle.deployable_id == Deployable.id)
        .outerjoin(PARENT, Deployable.parent_id == PARENT.id)
        .where(_IS_UNHELD, Handle.withheld == Withheld.QUARANTINED)
    )
    return {region for region in session.scalars(query) if region is not None}


def _failed(session: orm.Session) -> dict[int, int]:
    """Returns how many handles of each deployable their hosts failed to release or to clean, and
    try again; missing ones are left out."""
    rows = session.execute(
        sa.select(Handle.deployable_id, sa.func.count(Handle.id.distinct()))
        .join(models.Task, models.Task.handle_uuid == Handle.uuid)
        .where(
            models.Task.state == TaskState.OPEN,
            models.Task.kind.in_(tasks.HAND_BACK),
            models.Task.attempts > 0,
            _IS_UNHELD,
            Handle.is_missing.is_(False),
            sa.or_(Handle.withheld.is_(None), Handle.withheld != Withheld.QUARANTINED),
        )
        .group_by(Handle.deployable_id)
    )
    return {row[0]: row[1] for row in rows}


def host(session: orm.Session, hostname: str) -> Host | None:
    """Returns the state of a host as its agent reported it last; None if it has no agent."""
    query = sa.select(Agent.last_heartbeat, Agent.conflicts).where(Agent.hostname == hostname)
    row = session.execute(query).one_or_none()
    return None if row is None else Host(*row)


def tree(session: orm.Session, hostname: str) -> tuple[list[objects.DeviceUnits], dict[str, int]]:
    """Returns the devices of a host with their deployables and units, and how many units of each
    deployable are reserved. ``withheld`` of a unit is the value of its row."""
    handles: dict[int, list[objects.Unit]] = defaultdict(list)
    arq = models.ExtArq
    for row in session.execute(
        sa.select(
            Handle.deployable_id,
            Handle.uuid,
            Handle.type,
            Handle.info,
            Handle.is_missing,
            Handle.withheld,
            arq.uuid.label('arq_uuid'),
            arq.state.label('arq_state'),
            arq.instance_uuid,
            arq.project_id,
        )
        .join(Deployable, Handle.deployable_id == Deployable.id)
        .join(Device, Deployable.device_id == Device.id)
        .outerjoin(arq, Handle.arq_id == arq.id)
        .where(Device.hostname == hostname)
        .order_by(Handle.id)
    ):
        handles[row.deployable_id].append(objects.Unit.of(row))
    parts: dict[int, list[objects.DeployableUnits]] = defaultdict(list)
    reserved: dict[str, int] = {}
    for part in session.execute(
        sa.select(
            Deployable.id,
            Deployable.device_id,
            Deployable.uuid,
            Deployable.name,
            Deployable.rp_uuid,
            Deployable.resource_class,
            Deployable.traits,
            Deployable.reserved,
            PARENT.uuid.label('parent_uuid'),
        )
        .join(Device, Deployable.device_id == Device.id)
        .outerjoin(PARENT, Deployable.parent_id == PARENT.id)
        .where(Device.hostname == hostname)
        .order_by(Deployable.id)
    ):
        parts[part.device_id].append(objects.DeployableUnits.of(part, units=handles[part.id]))
        reserved[part.uuid] = part.reserved
    query = sa.select(Device).where(Device.hostname == hostname).order_by(Device.id)
    devices = [
        objects.DeviceUnits.of(row, deployables=parts[row.id]) for row in session.scalars(query)
    ]
    return devices, reserved
