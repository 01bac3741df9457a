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

Handle, Arq, Attribute = models.AttachHandle, models.ExtArq, models.Attribute
#: statements on the table itself leave out what the mapper does, which nobody needs there
_TABLE = Handle.__table__

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 300.0  #: seconds between two tries of a host
#: states of a request for which a host has something to prepare
UNPREPARED = (objects.State.BIND_STARTED, objects.State.PROVISIONING)
NO_FAILURE = {'work_attempts': 0, 'work_error': None, 'work_due_at': None}

#: nobody holds it, nothing is left to clean, it is not being programmed, and it is really there
IS_FREE = sa.and_(_TABLE.c.arq_id.is_(None), _TABLE.c.cleanup_since.is_(None),
                  _TABLE.c.is_programming.is_(False), _TABLE.c.is_missing.is_(False))
#: to be loaded with handles: where they are, as far as their work says that
PLACE = orm.joinedload(Handle.deployable).options(
    orm.load_only(models.Deployable.name),
    orm.joinedload(models.Deployable.device).load_only(
        models.Device.hostname, models.Device.key, models.Device.driver_name,
        models.Device.status, models.Device.fault))


_PROVIDERS = (
    sa.select(models.Deployable.rp_uuid, models.Device.hostname, models.Device.status)
    .join(models.Deployable.device)
    .where(models.Deployable.rp_uuid.in_(models.any_of('providers'))))
#: the free handles of providers, in the order in which everybody tries, and their attributes that
#: Placement knows: in one statement, for it is part of every bind
_OFFERS = sa.union_all(
    _PROVIDERS.add_columns(Handle.id.label('handle'), Handle.turn, Handle.is_host_prepared,
                           sa.null().label('key'), sa.null().label('value'))
    .outerjoin(Handle, sa.and_(Handle.deployable_id == models.Deployable.id, IS_FREE)),
    _PROVIDERS.add_columns(sa.null(), sa.null(), sa.null(), Attribute.key, Attribute.value)
    .join(Attribute, Attribute.deployable_id == models.Deployable.id)
    .where(attributes.IS_PUBLISHED)).order_by('handle')
_TAKE = sa.update(_TABLE).where(
    _TABLE.c.id == sa.bindparam('handle'), _TABLE.c.turn == sa.bindparam('last_turn'), IS_FREE)
_HELD = (sa.select(Handle).where(Handle.arq_id.in_(models.any_of('arqs'))).order_by(Handle.id)
         .options(PLACE).execution_options(populate_existing=True))
_RELEASE = sa.update(_TABLE).where(_TABLE.c.id.in_(models.any_of('ids'))).values(
    arq_id=None, **NO_FAILURE, cleanup_since=sa.case(
        (_TABLE.c.is_host_prepared, sa.bindparam('now', type_=models.Moment)), else_=None))


class Offer:
    """What a provider has to give."""

    def __init__(self, hostname: str, status: str) -> None:
        self.hostname = hostname
        self.is_disabled = status == objects.DeviceStatus.MAINTAINING
        self.resource_class: str | None = None
        #: as published
        self.traits = {os_traits.OWNER_CYBORG}
        #: id, turn and whether the host prepares it, in the order in which everybody tries
        self._free: list[tuple[int, int, bool]] = []

    def add(self, handle: int, turn: int, is_host_prepared: bool) -> None:
        self._free.append((handle, turn, is_host_prepared))

    def describe(self, key: str, value: str) -> None:
        """Note what an attribute says of its class and traits."""
        if key == attributes.RESOURCE_CLASS:
            self.resource_class = value
        elif attributes.TRAIT.fullmatch(key):
            self.traits.add(value)

    def take(self, session: orm.Session, arq_id: int) -> bool | None:
        """Take the first that is still free: does the host prepare it? None: there is none."""
        while self._free:
            handle, turn, is_host_prepared = self._free.pop(0)
            if session.execute(_TAKE, {'handle': handle, 'last_turn': turn, 'arq_id': arq_id,
                                       'turn': turn + 1}).rowcount:
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
            offer.add(row.handle, row.turn, row.is_host_prepared)
    return found


class CleanUp(enum.Enum):
    """What has to happen before something of a provider can be had again."""

    NONE = enum.auto()  #: nothing: all is in use
    UNDER_WAY = enum.auto()
    OWED = enum.auto()  #: by an agent that is silent


def clean_up(session: orm.Session, provider: str, silent_since: datetime.datetime) -> CleanUp:
    """Will a handle be free as soon as its host is done with it?"""
    agent = models.Agent
    found = session.execute(
        sa.select(agent.last_heartbeat).select_from(Handle)
        .join(Handle.deployable).join(models.Deployable.device)
        .outerjoin(agent, agent.hostname == models.Device.hostname)
        .where(models.Deployable.rp_uuid == provider, Handle.cleanup_since.is_not(None),
               Handle.work_error.is_(None), Handle.is_missing.is_(False)).limit(1)).first()
    if found is None:
        return CleanUp.NONE
    is_silent = found.last_heartbeat is None or found.last_heartbeat < silent_since
    return CleanUp.OWED if is_silent else CleanUp.UNDER_WAY


def is_about(outcome: objects.Outcome, handle: Handle | None) -> bool:
    """Does it tell of what was done for the present holder, or after the last one?"""
    return handle is not None and (handle.uuid, handle.turn) == (
        outcome.handle_uuid, outcome.turn)


def known_to_host(report: objects.Report) -> set[str]:
    """Handles that the host had prepared, or worked on, when it looked: what it saw there was
    its own, though they may have been cleaned since."""
    return {*report.given('in_flux', []), *report.prepared}


def gone(session: orm.Session, hostname: str) -> list[int]:
    """What a host no longer has of all that it prepared for requests, by row."""
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


def release(session: orm.Session, handles: Sequence[Handle]) -> None:
    """Nobody holds these any more; what a host prepared waits for its clean-up."""
    session.execute(_RELEASE, {'ids': [handle.id for handle in handles], 'now': models.now()})


def mark_prepared(session: orm.Session, uuids: Sequence[str]) -> None:
    """The host has prepared these."""
    session.execute(sa.update(Handle).where(Handle.uuid.in_(uuids)).values(**NO_FAILURE))


def mark_clean(session: orm.Session, outcomes: Sequence[objects.Outcome]) -> list[str]:
    """The host has cleaned these, they can be taken again; answers the hosts where that is
    news to Placement."""
    is_meant = sa.tuple_(Handle.uuid, Handle.turn).in_(
        [(outcome.handle_uuid, outcome.turn) for outcome in outcomes])
    healed = session.scalars(
        sa.select(models.Device.hostname).distinct()
        .join(models.Device.deployables).join(models.Deployable.attach_handles)
        .where(is_meant, sa.or_(Handle.work_error.is_not(None), Handle.is_missing))).all()
    session.execute(
        sa.update(Handle).where(is_meant, Handle.arq_id.is_(None))
        .values(cleanup_since=None, **NO_FAILURE))
    return list(healed)


def note_failure(session: orm.Session, handle: Handle, error: str) -> int:
    """The host failed; it tries again, later each time. Answers how often it has failed."""
    handle.work_attempts += 1
    handle.work_error = error
    handle.work_due_at = models.now() + datetime.timedelta(seconds=pause(handle.work_attempts))
    session.flush()
    return handle.work_attempts


def pause(attempts: int) -> float:
    """Seconds between a failure and the next try."""
    return min(FIRST_PAUSE * 2 ** min(attempts - 1, 16), LONGEST_PAUSE) if attempts else 0.0


def unclean(session: orm.Session, outcome: objects.Outcome) -> Handle | None:
    """The host could not clean a handle: answers it, if it should try again."""
    handle = session.scalar(
        sa.select(Handle).where(Handle.uuid == outcome.handle_uuid,
                                Handle.turn == outcome.turn, Handle.cleanup_since.is_not(None))
        .options(PLACE))
    if handle is not None:
        note_failure(session, handle, outcome.error)
    return handle


def work(handle: Handle, kind: objects.WorkKind,
         arq: models.ExtArq | None = None) -> objects.Work:
    """What the host is to do. The handle's deployable and device must be loaded."""
    deployable, device = handle.deployable, handle.deployable.device
    for_whom = {} if arq is None else {
        'arq_uuid': arq.uuid, 'instance_uuid': arq.instance_uuid,
        'project_id': arq.project_id, 'group': arq.group}
    return objects.Work(
        kind=kind, handle=objects.AttachHandle.of(handle), turn=handle.turn,
        driver_name=device.driver_name,
        device_key=device.key, deployable_name=deployable.name,
        delay=pause(handle.work_attempts), **for_whom)


#: the host has still to do its part of a bind
_IS_UNPREPARED = sa.and_(
    Handle.is_host_prepared, Handle.is_missing.is_(False), sa.or_(
        sa.and_(Arq.state == objects.State.BIND_STARTED, Arq.is_prepared.is_(False)),
        Arq.state == objects.State.PROVISIONING))
#: the host owes something: a clean-up, also of what it no longer offers, or its part of a bind
_IS_OWED = sa.or_(sa.and_(Handle.is_host_prepared, Handle.cleanup_since.is_not(None)),
                  _IS_UNPREPARED)


def pending(session: orm.Session, hostname: str) -> list[objects.Work]:
    """All that the host has still to do, whatever got lost on the way."""
    rows = session.execute(
        sa.select(Handle, Arq).join(Handle.deployable).join(models.Deployable.device)
        .outerjoin(Arq, Handle.arq_id == Arq.id)
        .where(models.Device.hostname == hostname, _IS_OWED)
        .options(orm.contains_eager(Handle.deployable).contains_eager(models.Deployable.device))
        .order_by(Handle.id))
    return [work(handle, objects.WorkKind.ATTACH, arq) if arq is not None
            else work(handle, objects.WorkKind.DETACH) for handle, arq in rows]


def owing_hosts(session: orm.Session, since: datetime.datetime,
                silent_since: datetime.datetime) -> list[str]:
    """Hosts whose agent lives and has owed something for so long that a message was lost.

    Two queries in one, each by an index that has little but what is owed: of all handles in one
    condition, a database would look at each.
    """
    unclean = (sa.select(Handle.deployable_id).where(
        Handle.is_host_prepared, Handle.cleanup_since < since, _is_due(since)))
    unprepared = (sa.select(Handle.deployable_id).join(Arq, Handle.arq_id == Arq.id).where(
        Arq.state.in_(UNPREPARED), Arq.updated_at < since, _IS_UNPREPARED, _is_due(since)))
    owing = sa.union(unclean, unprepared).subquery()
    return list(session.scalars(
        sa.select(models.Device.hostname).distinct().select_from(owing)
        .join(models.Deployable, models.Deployable.id == owing.c.deployable_id)
        .join(models.Deployable.device)
        .join(models.Agent, models.Agent.hostname == models.Device.hostname)
        .where(models.Agent.last_heartbeat >= silent_since)))


def _is_due(since: datetime.datetime) -> sa.ColumnElement[bool]:
    """Not what the host is to try again later."""
    return sa.or_(Handle.work_due_at.is_(None), Handle.work_due_at < since)


def unwanted(session: orm.Session, uuids: Sequence[str]) -> list[objects.Work]:
    """Clean-ups for handles that were prepared for requests which are gone meanwhile."""
    rows = list(session.scalars(
        sa.select(Handle).where(Handle.uuid.in_(uuids), Handle.arq_id.is_(None))
        .options(PLACE)))
    session.execute(
        sa.update(Handle).where(Handle.id.in_([row.id for row in rows]), IS_FREE)
        .values(cleanup_since=models.now()), execution_options={'synchronize_session': False})
    return [work(row, objects.WorkKind.DETACH) for row in rows]
