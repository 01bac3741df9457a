# SPDX-License-Identifier: Apache-2.0
"""Attach handles in SQL. Each change is one compare-and-set, so that a race has one winner."""

import datetime
import enum
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import os_traits
import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import models
from cyborg.objects import Withheld

Handle = models.AttachHandle
Arq = models.ExtArq
#: for statements that do not need the mapper
_TABLE = models.table(Handle)

#: no request holds it, nothing withholds it, and it is present
IS_FREE = sa.and_(
    _TABLE.c.arq_id.is_(None), _TABLE.c.withheld.is_(None), _TABLE.c.is_missing.is_(False)
)
#: loaded with handles: deployable and device, which tasks name, and the deployable above, which may
#: be the region
PLACE = orm.joinedload(Handle.deployable).options(
    orm.load_only(
        models.Deployable.name,
        models.Deployable.uuid,
        models.Deployable.parent_id,
        models.Deployable.is_programmable,
    ),
    orm.joinedload(models.Deployable.parent).load_only(
        models.Deployable.uuid,
        models.Deployable.parent_id,
        models.Deployable.is_programmable,
    ),
    orm.joinedload(models.Deployable.device).load_only(
        models.Device.uuid,
        models.Device.hostname,
        models.Device.key,
        models.Device.driver_name,
        models.Device.status,
        models.Device.fault,
    ),
)


_IS_ASKED = models.Deployable.rp_uuid.in_(models.any_of('providers'))
#: providers, and their free handles in the order in which all binds try them. It is one statement,
#: because every bind needs it, and a union, so that traits are not read with each handle.
_OFFERS: sa.CompoundSelect[*tuple[Any, ...]] = sa.union_all(
    sa.select(
        models.Deployable.rp_uuid,
        models.Device.hostname,
        models.Device.status,
        models.Device.driver_name,
        models.Device.fault,
        models.Deployable.resource_class,
        models.Deployable.traits,
        sa.select(models.Agent.disabled_reason)
        .where(models.Agent.hostname == models.Device.hostname)
        .scalar_subquery()
        .label('host_disabled'),
        sa.null().label('handle'),
        sa.null().label('generation'),
        sa.type_coerce(sa.null(), sa.Boolean).label('is_host_prepared'),
    )
    .join(models.Deployable.device)
    .where(_IS_ASKED),
    sa.select(
        models.Deployable.rp_uuid,
        *(sa.null() for _ in range(7)),
        Handle.id,
        Handle.generation,
        Handle.is_host_prepared,
    )
    .join(Handle.deployable)
    .where(_IS_ASKED, IS_FREE),
).order_by('handle')
_TAKE = sa.update(_TABLE).where(
    _TABLE.c.id == sa.bindparam('handle'),
    _TABLE.c.generation == sa.bindparam('last_generation'),
    IS_FREE,
)
_HELD = (
    sa.select(Handle)
    .where(Handle.arq_id.in_(models.any_of('arqs')))
    .order_by(Handle.id)
    .options(PLACE)
    .execution_options(populate_existing=True)
)
_RELEASE = (
    sa.update(_TABLE)
    .where(_TABLE.c.id.in_(models.any_of('ids')))
    .values(arq_id=None, withheld=sa.bindparam('why'))
)
_RELEASE_PRESENT = _RELEASE.where(_TABLE.c.is_missing.is_(False))


class Offer:
    """What a provider offers."""

    def __init__(
        self,
        hostname: str,
        status: str,
        resource_class: str | None,
        traits: Iterable[str],
        driver_name: str,
        host_disabled: str | None = None,
        fault: str | None = None,
    ) -> None:
        self.hostname = hostname
        self.driver_name = driver_name
        #: why an operator has disabled the agent of the host, if so
        self.host_disabled = host_disabled
        self.fault = fault
        self.is_disabled = status == objects.DeviceStatus.MAINTAINING
        self.resource_class = resource_class
        #: as published in Placement
        self.traits = {os_traits.OWNER_CYBORG, *traits}
        #: id, generation and whether the host prepares it, in the order in which all binds try them
        self._free: list[tuple[int, int, bool]] = []

    def add(self, handle: int, generation: int, is_host_prepared: bool) -> None:
        self._free.append((handle, generation, is_host_prepared))

    def take(self, session: orm.Session, arq_id: int) -> bool | None:
        """Take the first free handle; returns whether its host must prepare it, or None if no
        handle is free."""
        while self._free:
            handle, generation, is_host_prepared = self._free.pop(0)
            taken = session.execute(
                _TAKE,
                {
                    'handle': handle,
                    'last_generation': generation,
                    'arq_id': arq_id,
                    'generation': generation + 1,
                },
            )
            if models.matched(taken):
                return is_host_prepared
        return None


def offers(session: orm.Session, providers: Collection[str]) -> dict[str, Offer]:
    """Returns what these providers offer; unknown providers are left out."""
    rows = session.execute(_OFFERS, {'providers': list(providers)}).all()
    found = {
        row.rp_uuid: Offer(
            row.hostname,
            row.status,
            row.resource_class,
            row.traits,
            row.driver_name,
            row.host_disabled,
            row.fault,
        )
        for row in rows
        if row.handle is None
    }
    for row in rows:
        if row.handle is not None:
            found[row.rp_uuid].add(row.handle, row.generation, row.is_host_prepared)
    return found


class Wait(enum.Enum):
    """What a bind must wait for before a provider has a free handle."""

    NONE = enum.auto()  #: nothing: all handles are in use
    UNDER_WAY = enum.auto()
    OWED = enum.auto()  #: the tasks of an agent that is silent


def wait_for(session: orm.Session, provider: str, silent_since: datetime.datetime) -> Wait:
    """Returns whether a handle becomes free when its host has performed its tasks."""
    agent, task = models.Agent, models.Task
    has_failed = (
        sa.select(task.id)
        .where(
            task.handle_uuid == Handle.uuid, task.state == objects.TaskState.OPEN, task.attempts > 0
        )
        .exists()
    )
    # without tasks, the parts of a region wait until an operator decides about a quarantined one
    is_expected = (
        sa.select(task.id)
        .where(task.device_uuid == models.Device.uuid, task.state == objects.TaskState.OPEN)
        .exists()
    )
    found = session.execute(
        sa.select(agent.last_heartbeat)
        .select_from(Handle)
        .join(Handle.deployable)
        .join(models.Deployable.device)
        .outerjoin(agent, agent.hostname == models.Device.hostname)
        .where(
            models.Deployable.rp_uuid == provider,
            Handle.is_missing.is_(False),
            Handle.withheld.in_((Withheld.CLEANING, Withheld.PROGRAMMING)),
            sa.not_(has_failed),
            is_expected,
        )
        .limit(1)
    ).first()
    if found is None:
        return Wait.NONE
    is_silent = found.last_heartbeat is None or found.last_heartbeat < silent_since
    return Wait.OWED if is_silent else Wait.UNDER_WAY


def known_to_host(report: objects.Report) -> set[str]:
    """Returns the handles that the host had prepared or worked on during its discovery. The
    devices that it found there were its own, though the handles may have been cleaned since."""
    return {*report.given('in_flux', []), *report.prepared}


def gone(session: orm.Session, hostname: str) -> list[int]:
    """Returns the ids of held, host-prepared handles that are missing."""
    return list(
        session.scalars(
            sa.select(Handle.id)
            .join(Handle.deployable)
            .join(models.Deployable.device)
            .where(
                models.Device.hostname == hostname,
                Handle.is_missing,
                Handle.is_host_prepared,
                Handle.arq_id.is_not(None),
            )
        )
    )


def held_by_any(session: orm.Session, arq_ids: Sequence[int]) -> list[Handle]:
    """Returns the handles of these requests, with deployable and device."""
    return list(session.scalars(_HELD, {'arqs': arq_ids}))


def held_by(session: orm.Session, arq_id: int) -> Handle | None:
    """Returns the handle of a request, with deployable and device."""
    return next(iter(held_by_any(session, [arq_id])), None)


def held_in(session: orm.Session, deployable_ids: Collection[int]) -> list[Handle]:
    """Returns the held handles of deployables, with deployable and device."""
    return list(
        session.scalars(
            sa.select(Handle)
            .where(Handle.deployable_id.in_(deployable_ids), Handle.arq_id.is_not(None))
            .order_by(Handle.id)
            .options(PLACE)
            .execution_options(populate_existing=True)
        )
    )


def states_of_holders(session: orm.Session, deployable_ids: Collection[int]) -> set[str]:
    """Returns the states of the requests that hold handles of deployables."""
    return set(
        session.scalars(
            sa.select(Arq.state)
            .distinct()
            .join(Handle, Handle.arq_id == Arq.id)
            .where(Handle.deployable_id.in_(deployable_ids))
        )
    )


def by_uuid(session: orm.Session, uuids: Collection[str]) -> dict[str, Handle]:
    """Returns handles with deployable and device, locked."""
    return {
        handle.uuid: handle
        for handle in session.scalars(
            sa.select(Handle)
            .where(Handle.uuid.in_(uuids))
            .order_by(Handle.id)
            .options(PLACE)
            .with_for_update(of=Handle)
            .execution_options(populate_existing=True)
        )
    }


def lock(handles: Sequence[Handle]) -> None:
    """Lock handles and refresh them."""
    session = orm.object_session(handles[0]) if handles else None
    if session is not None:
        with session.no_autoflush:
            session.scalars(
                sa.select(Handle)
                .where(Handle.id.in_([handle.id for handle in handles]))
                .order_by(Handle.id)
                .with_for_update()
                .execution_options(populate_existing=True)
            ).all()


def release(
    session: orm.Session, handles: Sequence[Handle], withheld: Withheld | None = None
) -> None:
    """Release handles; they can be taken unless something withholds them.

    A report may have marked one as missing since it was read. Then all are read again: their host
    must be woken.
    """
    given = {'ids': [handle.id for handle in handles], 'why': withheld}
    if models.matched(session.execute(_RELEASE_PRESENT, given)) != len(handles):
        lock(handles)
        session.execute(_RELEASE, given)
    for handle in handles:
        orm.attributes.set_committed_value(handle, 'arq_id', None)
        orm.attributes.set_committed_value(handle, 'withheld', withheld)


def lock_free_parts(session: orm.Session, deployable_ids: Collection[int]) -> bool:
    """Lock the handles of deployables; returns whether no request holds one of them."""
    holders = session.scalars(
        sa.select(Handle.arq_id)
        .where(Handle.deployable_id.in_(deployable_ids))
        .order_by(Handle.id)
        .with_for_update()
    ).all()
    return not any(holders)


def withhold(session: orm.Session, why: Withheld, *where: sa.ColumnElement[bool]) -> int:
    """Withhold free handles; returns how many were free."""
    return models.matched(
        session.execute(
            sa.update(Handle).where(IS_FREE, *where).values(withheld=why),
            execution_options={'synchronize_session': False},
        )
    )


def withhold_one(session: orm.Session, handle: Handle, why: Withheld) -> bool:
    """Withhold a handle; returns False if it is not free any more."""
    return bool(withhold(session, why, Handle.id == handle.id))


def withhold_parts(session: orm.Session, deployable_ids: Collection[int], why: Withheld) -> int:
    """Withhold the free handles of deployables; returns how many were free."""
    return withhold(session, why, Handle.deployable_id.in_(deployable_ids))


def give_back(
    session: orm.Session,
    deployable_ids: Collection[int],
    why: Withheld,
    then: Withheld | None = None,
) -> None:
    """Offer handles of deployables again that were withheld for this reason, or withhold them for
    another one."""
    session.execute(
        sa.update(Handle)
        .where(Handle.deployable_id.in_(deployable_ids), Handle.withheld == why)
        .values(withheld=then),
        execution_options={'synchronize_session': False},
    )


def leftovers(session: orm.Session, hostname: str, uuids: Collection[str]) -> list[Handle]:
    """Returns free handles of a host for which a mediated device exists."""
    return list(
        session.scalars(
            sa.select(Handle)
            .join(Handle.deployable)
            .join(models.Deployable.device)
            .where(
                models.Device.hostname == hostname,
                IS_FREE,
                Handle.uuid.in_(uuids),
                Handle.type == objects.HandleType.MDEV,
            )
            .order_by(Handle.id)
            .options(PLACE)
            .execution_options(populate_existing=True)
        )
    )


def use_of(
    session: orm.Session, deployable_ids: Collection[int]
) -> list[tuple[Handle, str | None]]:
    """Returns the handles of deployables, each with the uuid of the request that holds it."""
    return [
        (handle, arq)
        for handle, arq in session.execute(
            sa.select(Handle, Arq.uuid)
            .outerjoin(Handle.arq)
            .where(Handle.deployable_id.in_(deployable_ids))
            .order_by(Handle.id)
            .execution_options(populate_existing=True)
        )
    ]
