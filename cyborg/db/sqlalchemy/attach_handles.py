# SPDX-License-Identifier: Apache-2.0
"""Who holds which handle. Every change is one compare-and-set, so that races have one winner."""

import datetime
import enum
from collections.abc import Collection, Sequence

import os_traits
import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import attributes, models
from cyborg.objects import Withheld

Handle, Arq, Attribute = models.AttachHandle, models.ExtArq, models.Attribute
#: statements on the table itself leave out what the mapper does, which nobody needs there
_TABLE = Handle.__table__

#: no request holds it, nothing withholds it, and it is really there
IS_FREE = sa.and_(_TABLE.c.arq_id.is_(None), _TABLE.c.withheld.is_(None),
                  _TABLE.c.is_missing.is_(False))
#: loaded with handles: where they are, as their tasks tell it
PLACE = orm.joinedload(Handle.deployable).options(
    orm.load_only(models.Deployable.name, models.Deployable.uuid,
                  models.Deployable.is_programmable),
    orm.joinedload(models.Deployable.device).load_only(
        models.Device.uuid, models.Device.hostname, models.Device.key,
        models.Device.driver_name, models.Device.status, models.Device.fault))


_PROVIDERS = (
    sa.select(models.Deployable.rp_uuid, models.Device.hostname, models.Device.status)
    .join(models.Deployable.device)
    .where(models.Deployable.rp_uuid.in_(models.any_of('providers'))))
#: the free handles of providers, in the order in which everybody tries, and their attributes that
#: Placement knows: in one statement, for it is part of every bind
_OFFERS = sa.union_all(
    _PROVIDERS.add_columns(Handle.id.label('handle'), Handle.generation, Handle.is_host_prepared,
                           sa.null().label('key'), sa.null().label('value'))
    .outerjoin(Handle, sa.and_(Handle.deployable_id == models.Deployable.id, IS_FREE)),
    _PROVIDERS.add_columns(sa.null(), sa.null(), sa.null(), Attribute.key, Attribute.value)
    .join(Attribute, Attribute.deployable_id == models.Deployable.id)
    .where(attributes.IS_PUBLISHED)).order_by('handle')
_TAKE = sa.update(_TABLE).where(
    _TABLE.c.id == sa.bindparam('handle'),
    _TABLE.c.generation == sa.bindparam('last_generation'), IS_FREE)
_HELD = (sa.select(Handle).where(Handle.arq_id.in_(models.any_of('arqs'))).order_by(Handle.id)
         .options(PLACE).execution_options(populate_existing=True))
_RELEASE = sa.update(_TABLE).where(_TABLE.c.id.in_(models.any_of('ids'))).values(
    arq_id=None, withheld=sa.bindparam('why'))


class Offer:
    """What a provider has to give."""

    def __init__(self, hostname: str, status: str) -> None:
        self.hostname = hostname
        self.is_disabled = status == objects.DeviceStatus.MAINTAINING
        self.resource_class: str | None = None
        #: as published
        self.traits = {os_traits.OWNER_CYBORG}
        #: id, generation and whether the host prepares it, in the order in which everybody tries
        self._free: list[tuple[int, int, bool]] = []

    def add(self, handle: int, generation: int, is_host_prepared: bool) -> None:
        self._free.append((handle, generation, is_host_prepared))

    def describe(self, key: str, value: str) -> None:
        """Note what an attribute says of its class and traits."""
        if key == attributes.RESOURCE_CLASS:
            self.resource_class = value
        elif attributes.TRAIT.fullmatch(key):
            self.traits.add(value)

    def take(self, session: orm.Session, arq_id: int) -> bool | None:
        """Take the first that is still free: does the host prepare it? None: there is none."""
        while self._free:
            handle, generation, is_host_prepared = self._free.pop(0)
            if session.execute(_TAKE, {
                    'handle': handle, 'last_generation': generation, 'arq_id': arq_id,
                    'generation': generation + 1}).rowcount:
                return is_host_prepared
        return None


def offers(session: orm.Session, providers: Collection[str]) -> dict[str, Offer]:
    """What one could try to take of these providers; those that we do not know are left out."""
    found: dict[str, Offer] = {}
    for row in session.execute(_OFFERS, {'providers': list(providers)}):
        offer = found.setdefault(row.rp_uuid, Offer(row.hostname, row.status))
        if row.key is not None:
            offer.describe(row.key, row.value)
        elif row.handle is not None:
            offer.add(row.handle, row.generation, row.is_host_prepared)
    return found


class Wait(enum.Enum):
    """What has to happen before something of a provider can be had again."""

    NONE = enum.auto()  #: nothing: all is in use
    UNDER_WAY = enum.auto()
    OWED = enum.auto()  #: by an agent that is silent


def wait_for(session: orm.Session, provider: str, silent_since: datetime.datetime) -> Wait:
    """Will a handle be free as soon as its host has done its tasks?"""
    agent, task = models.Agent, models.Task
    has_failed = sa.select(task.id).where(
        task.handle_uuid == Handle.uuid, task.state == objects.TaskState.OPEN,
        task.attempts > 0).exists()
    found = session.execute(
        sa.select(agent.last_heartbeat).select_from(Handle)
        .join(Handle.deployable).join(models.Deployable.device)
        .outerjoin(agent, agent.hostname == models.Device.hostname)
        .where(models.Deployable.rp_uuid == provider, Handle.is_missing.is_(False),
               Handle.withheld.in_((Withheld.CLEANING, Withheld.PROGRAMMING)),
               sa.not_(has_failed)).limit(1)).first()
    if found is None:
        return Wait.NONE
    is_silent = found.last_heartbeat is None or found.last_heartbeat < silent_since
    return Wait.OWED if is_silent else Wait.UNDER_WAY


def known_to_host(report: objects.Report) -> set[str]:
    """Handles that the host had prepared, or worked on, when it looked: what it saw there was
    its own, though they may have been cleaned since."""
    return {*report.given('in_flux', []), *report.prepared}


def gone(session: orm.Session, hostname: str) -> list[int]:
    """Held handles that their host prepares and no longer has, by row."""
    return list(session.scalars(
        sa.select(Handle.id).join(Handle.deployable).join(models.Deployable.device)
        .where(models.Device.hostname == hostname, Handle.is_missing, Handle.is_host_prepared,
               Handle.arq_id.is_not(None))))


def held_by_any(session: orm.Session, arq_ids: Sequence[int]) -> list[Handle]:
    """What these requests hold, with where it is."""
    return list(session.scalars(_HELD, {'arqs': arq_ids}))


def held_by(session: orm.Session, arq_id: int) -> Handle | None:
    """What a request holds, with where it is."""
    return next(iter(held_by_any(session, [arq_id])), None)


def held_in(session: orm.Session, deployable_ids: Collection[int]) -> list[Handle]:
    """What requests hold of deployables, with where it is."""
    return list(session.scalars(
        sa.select(Handle).where(Handle.deployable_id.in_(deployable_ids),
                                Handle.arq_id.is_not(None)).order_by(Handle.id)
        .options(PLACE).execution_options(populate_existing=True)))


def by_uuid(session: orm.Session, uuids: Collection[str]) -> dict[str, Handle]:
    """Handles as they are now, with where they are, until we are done."""
    return {handle.uuid: handle for handle in session.scalars(
        sa.select(Handle).where(Handle.uuid.in_(uuids)).order_by(Handle.id).options(PLACE)
        .with_for_update(of=Handle).execution_options(populate_existing=True))}


def lock(handles: Sequence[Handle]) -> None:
    """See handles as they are now, until we are done."""
    session = orm.object_session(handles[0]) if handles else None
    if session is not None:
        with session.no_autoflush:
            session.scalars(
                sa.select(Handle).where(Handle.id.in_([handle.id for handle in handles]))
                .order_by(Handle.id).with_for_update()
                .execution_options(populate_existing=True)).all()


def release(session: orm.Session, handles: Sequence[Handle],
            withheld: Withheld | None = None) -> None:
    """No request holds these any more; they can be taken unless something withholds them."""
    session.execute(_RELEASE, {'ids': [handle.id for handle in handles], 'why': withheld})
    for handle in handles:
        orm.attributes.set_committed_value(handle, 'arq_id', None)
        orm.attributes.set_committed_value(handle, 'withheld', withheld)


def withhold(session: orm.Session, why: Withheld, *where: sa.ColumnElement[bool]) -> int:
    """Keep free handles from being taken; returns how many were free."""
    return session.execute(
        sa.update(Handle).where(IS_FREE, *where).values(withheld=why),
        execution_options={'synchronize_session': False}).rowcount


def withhold_one(session: orm.Session, handle: Handle, why: Withheld) -> bool:
    """Keep a handle from being taken; False if it is not free any more."""
    return bool(withhold(session, why, Handle.id == handle.id))


def withhold_parts(session: orm.Session, deployable_ids: Collection[int], why: Withheld) -> int:
    """Keep the free handles of deployables from being taken; returns how many were free."""
    return withhold(session, why, Handle.deployable_id.in_(deployable_ids))


def give_back(session: orm.Session, deployable_ids: Collection[int], why: Withheld,
              then: Withheld | None = None) -> None:
    """Let handles of deployables be taken again that were withheld for this reason, or withhold
    them for another one."""
    session.execute(
        sa.update(Handle).where(Handle.deployable_id.in_(deployable_ids), Handle.withheld == why)
        .values(withheld=then), execution_options={'synchronize_session': False})


def leftovers(session: orm.Session, hostname: str, uuids: Collection[str]) -> list[Handle]:
    """Free handles of a host for which a mediated device exists."""
    return list(session.scalars(
        sa.select(Handle).join(Handle.deployable).join(models.Deployable.device)
        .where(models.Device.hostname == hostname, IS_FREE, Handle.uuid.in_(uuids),
               Handle.type == objects.HandleType.MDEV).order_by(Handle.id)
        .options(PLACE).execution_options(populate_existing=True)))


def use_of(session: orm.Session,
           deployable_ids: Collection[int]) -> list[tuple[Handle, str | None]]:
    """The handles of deployables, each with the uuid of the request that holds it."""
    return [(handle, arq) for handle, arq in session.execute(
        sa.select(Handle, Arq.uuid).outerjoin(Handle.arq)
        .where(Handle.deployable_id.in_(deployable_ids)).order_by(Handle.id)
        .execution_options(populate_existing=True))]
