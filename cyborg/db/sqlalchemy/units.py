# SPDX-License-Identifier: Apache-2.0
"""Units in SQL: how many of each deployable are held, withheld and free.

The number of statements does not depend on the number of hosts.
"""

import datetime
import functools
import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import os_traits
import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import attach_handles, models, tasks
from cyborg.objects import TaskState, Withheld

Handle = models.AttachHandle
Deployable = models.Deployable
Device = models.Device
PARENT = orm.aliased(Deployable)
#: a card is not a region of its regions
_IS_REGION = sa.and_(PARENT.is_programmable, PARENT.parent_id.is_not(None))


@dataclass(frozen=True, slots=True)
class Host:
    """The state of a host as its agent reported it last."""

    last_heartbeat: datetime.datetime
    #: provider name -> who claims it
    conflicts: Mapping[str, str]


@dataclass(slots=True)
class Part:
    """A deployable and the numbers of its units by their state."""

    rp_uuid: str
    name: str
    hostname: str
    type: str
    vendor: str
    model: str | None
    resource_class: str
    is_disabled: bool
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
MISSING = 'The device is gone from the bus.'
#: the fields of a Part in their order, then columns by which its other fields are found
_PARTS = (
    sa.select(
        Deployable.rp_uuid,
        Deployable.name,
        Device.hostname,
        Device.type,
        Device.vendor,
        Device.model,
        Deployable.resource_class,
        sa.or_(
            Device.status == objects.DeviceStatus.MAINTAINING,
            sa.exists().where(
                models.Agent.hostname == Device.hostname, models.Agent.disabled_reason.is_not(None)
            ),
        ),
        sa.case((Device.is_missing, MISSING), else_=Device.fault),
        *(_COUNTED.c[name] for name in COUNTS),
        Deployable.reserved,
        sa.type_coerce(Deployable.traits, sa.Text),
        Deployable.id.label('deployable_id'),
        #: the deployable with the image, if this one is a region or a part of it
        sa.case((Deployable.is_programmable, Deployable.id), (_IS_REGION, PARENT.id)).label(
            'region'
        ),
    )
    .join(Device, Deployable.device_id == Device.id)
    .outerjoin(PARENT, Deployable.parent_id == PARENT.id)
    .join(_COUNTED, _COUNTED.c.deployable_id == Deployable.id)
    .where(Deployable.resource_class.is_not(None))
    .order_by(Device.hostname, Deployable.id)
)


# Most hosts of a cloud are alike: few documents are different, and each is read once.


@functools.lru_cache
def _traits(document: str | None) -> frozenset[str]:
    return frozenset((os_traits.OWNER_CYBORG, *json.loads(document or '[]')))


@functools.lru_cache
def _conflicts(document: str) -> Mapping[str, str]:
    conflicts: dict[str, str] = json.loads(document)
    return conflicts


def parts(
    session: orm.Session, classes: Collection[str] | None = None, hostname: str | None = None
) -> list[Part]:
    """Returns the deployables that have units of some classes, or of all, in the order of hosts;
    those of one host, or of all."""
    query = _PARTS
    if classes is not None:
        query = query.where(Deployable.resource_class.in_(classes))
    if hostname is not None:
        query = query.where(Device.hostname == hostname)
    failed = _failed(session)
    # by the connection: a session would copy each row
    rows = session.connection().execute(query).all()
    # units that are being cleaned there are reserved, too
    quarantined = {row.region for row in rows if row.quarantined} - {None}
    found = []
    for *fields, traits, deployable, region in rows:
        part = Part(*[*fields, _traits(traits)])
        part.lost += part.cleaning if region in quarantined else failed.get(deployable, 0)
        found.append(part)
    return found


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


def hosts(session: orm.Session, hostname: str | None = None) -> dict[str, Host]:
    """Returns the state of hosts as their agents reported it last, by host."""
    agent = models.Agent
    query = sa.select(
        agent.hostname, agent.last_heartbeat, sa.type_coerce(agent.conflicts, sa.Text)
    )
    if hostname is not None:
        query = query.where(agent.hostname == hostname)
    return {
        name: Host(last_heartbeat, _conflicts(document))
        for name, last_heartbeat, document in session.connection().execute(query)
    }


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
