# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests in SQL."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging
from cyborg.objects import arq_states
from cyborg.objects.arq_states import State

Arq, Handle, Profile = models.ExtArq, models.AttachHandle, models.DeviceProfile

_heartbeat = models.Agent.last_heartbeat
#: the state to be shown: what a silent host had prepared may be there or not
STATE = sa.case(
    (sa.and_(Handle.is_host_prepared, Arq.state.in_((State.BOUND, State.PROVISIONING)),
             sa.or_(_heartbeat.is_(None),
                    _heartbeat < sa.bindparam('silent_since', type_=_heartbeat.type))),
     arq_states.UNKNOWN), else_=Arq.state)
#: the server to be shown: one whose bind failed is no server's, though its row remembers whose it
#: was to be. Nova takes "failed" for an end like any other, and would start the server without
#: its device; of a server without requests it knows that something is wrong.
SERVER = sa.case((Arq.state == State.BIND_FAILED, None), else_=Arq.instance_uuid)
#: named as the fields of objects.Arq, so that one query row is one object
ALL = sa.select(
    Arq.uuid, Arq.device_profile_group_id, Arq.group, Arq.hostname,
    Arq.device_rp_uuid, SERVER.label('instance_uuid'), Arq.project_id, Arq.reason, Arq.created_at,
    Arq.updated_at, Profile.name.label('device_profile_name'),
    Handle.type.label('attach_handle_type'), Handle.uuid.label('attach_handle_uuid'),
    Handle.info.label('attach_handle_info'), STATE.label('state'),
).select_from(Arq).outerjoin(Profile, Arq.device_profile_id == Profile.id).outerjoin(
    Handle, Handle.arq_id == Arq.id).outerjoin(
    models.Agent, models.Agent.hostname == Arq.hostname)
FILTERS = {
    'uuid': Arq.uuid, 'instance_uuid': Arq.instance_uuid,
    'hostname': Arq.hostname, 'device_rp_uuid': Arq.device_rp_uuid,
    'project_id': Arq.project_id, 'device_profile_name': Profile.name,
    'state': STATE,
}
#: what a group says of where its units go, and the values for which a guest gets nothing
ATTACH_TARGET, NO_GUEST = 'accel:attach_target', ('host', 'none')
_ADD = sa.insert(Arq)
_TABLE = Arq.__table__
_WRITE = sa.update(_TABLE).where(
    _TABLE.c.id.in_(models.any_of('ids')), _TABLE.c.state == sa.bindparam('before'))
#: how many requests that nobody bound one transaction deletes
ABANDONED_AT_ONCE = 100
NOWHERE = {'hostname': None, 'device_rp_uuid': None, 'instance_uuid': None,
           'bind_deadline': None}


@dataclass(frozen=True)
class Scope:
    """Whose requests one may see."""

    project_id: str | None  #: None: everybody's
    silent_since: datetime.datetime  #: agents not heard of since then are down

    def limit(self, query: sa.Select) -> sa.Select:
        return query if self.project_id is None else query.where(
            Arq.project_id == self.project_id)

    def covers(self, arq: Arq) -> bool:
        return self.project_id in (None, arq.project_id)


def find(session: orm.Session, scope: Scope, filters: paging.Filters,
         page: paging.Page) -> list[objects.Arq]:
    """Those that match, a page of them."""
    query = scope.limit(ALL)
    if filters.get('instance_uuid'):
        query = query.where(Arq.state != State.BIND_FAILED)
    query = paging.page_of(session, query, Arq, FILTERS, filters, page)
    rows = session.execute(query, {'silent_since': scope.silent_since})
    return [objects.Arq.of(row, attach_handle_info=row.attach_handle_info or {},
                           attach_handle_type=_shown_type(row)) for row in rows]


def _shown_type(row: Any) -> str | None:
    """Nova attaches nothing of a type that it does not know to the server."""
    is_kept_from_guest = row.group.get(ATTACH_TARGET) in NO_GUEST
    return objects.HandleType.TEST_PCI if row.attach_handle_type and is_kept_from_guest \
        else row.attach_handle_type


def get(session: orm.Session, scope: Scope, uuid: str) -> objects.Arq:
    """One of them, or ArqNotFound; a foreign one is not told from one that is not there."""
    found = find(session, scope, {'uuid': uuid}, {})
    if not found:
        raise errors.ArqNotFound(uuids=uuid)
    return found[0]


def insert(session: orm.Session, groups: Sequence[dict[str, str]], project_id: str | None,
           profile_id: int | None) -> list[dict[str, Any]]:
    """Store one new request per unit that the groups ask for, in their order; returns the rows."""
    now = models.now()
    rows = [
        {'uuid': uuidutils.generate_uuid(), 'state': State.INITIAL, 'group': group,
         'device_profile_id': profile_id, 'device_profile_group_id': index,
         'project_id': project_id, 'created_at': now}
        for index, group in enumerate(groups) for _ in range(units(group))]
    session.execute(_ADD, rows)
    return rows


def units(group: dict[str, str]) -> int:
    """How many attachable units a profile group asks for."""
    return sum(int(value) for key, value in group.items() if key.startswith('resources:'))


# -- rows to be changed ----------------------------------------------------------------------


def locking(*where: sa.ColumnElement[bool]) -> sa.Select:
    """A query for rows that nobody else changes before we are done, and as they are now.

    Everybody locks in the order of the ids. SQLite needs no lock: it has one writer.
    """
    return (sa.select(Arq).where(*where).order_by(Arq.id).with_for_update()
            .execution_options(populate_existing=True))


def locked(session: orm.Session, *where: sa.ColumnElement[bool]) -> list[Arq]:
    """Rows, ours until we are done."""
    return list(session.scalars(locking(*where)))


def locked_by(session: orm.Session, query: sa.Select, scope: Scope,
              **given: Collection[str]) -> list[Arq]:
    """The same by a query that was built before and is given its values now."""
    return list(session.scalars(scope.limit(query), given))


def require_all(rows: Sequence[Arq], uuids: Collection[str]) -> None:
    """ArqNotFound for those that are not among the rows."""
    if missing := set(uuids) - {row.uuid for row in rows}:
        raise errors.ArqNotFound(uuids=', '.join(sorted(missing)))


def write(session: orm.Session, rows: Sequence[Arq], before: str, after: State,
          **values: object) -> None:
    """Set state and values of rows that are still in the state before."""
    written = session.execute(_WRITE, {
        'ids': [row.id for row in rows], 'before': before, 'state': after, **values})
    if written.rowcount != len(rows):
        raise errors.BadArqState(uuid=', '.join(row.uuid for row in rows), state='changing',
                                 event=f'become {after}')
    for row in rows:
        for name, value in {'state': after, **values}.items():
            orm.attributes.set_committed_value(row, name, value)


def delete(session: orm.Session, rows: Sequence[Arq]) -> None:
    """Drop rows."""
    session.execute(_DELETE, {'ids': [row.id for row in rows]})


# -- which rows ------------------------------------------------------------------------------


def wanted(session: orm.Session, uuids: Collection[str],
           instances: Collection[str]) -> list[Arq]:
    """These requests, and all others of these servers, ours until we are done."""
    return list(session.scalars(_WANTED, {'uuids': list(uuids), 'instances': list(instances)}))


def of_servers(session: orm.Session, instances: Collection[str]) -> list[Arq]:
    """All requests of servers, ours until we are done."""
    return locked(session, Arq.instance_uuid.in_(instances)) if instances else []


def of_instance(session: orm.Session, instance: str, hostname: str | None = None) -> list[Arq]:
    """All requests of a server, on one host or wherever, ours until we are done."""
    query = _OF_INSTANCE.where(Arq.hostname == hostname) if hostname else _OF_INSTANCE
    return list(session.scalars(query, {'instance': instance}))


def by_uuids(session: orm.Session, scope: Scope, uuids: Collection[str]) -> list[Arq]:
    """Requests that the caller may see, ours until we are done."""
    return locked_by(session, _BY_UUID, scope, uuids=list(uuids))


def by_ids(session: orm.Session, ids: Collection[int]) -> list[Arq]:
    """Requests by row, ours until we are done."""
    return locked(session, Arq.id.in_(ids)) if ids else []


def in_states(session: orm.Session, uuid: str, states: Collection[State]) -> list[Arq]:
    """A request, if it is in one of these states, ours until we are done."""
    return locked(session, Arq.uuid == uuid, Arq.state.in_(states))


def in_other_states(session: orm.Session, arq_id: int, states: Collection[State]) -> list[Arq]:
    """A request, if it is in none of these states, ours until we are done."""
    return locked(session, Arq.id == arq_id, Arq.state.not_in(states))


def of_server_since(session: orm.Session, server: str, providers: Collection[str], state: State,
                    before: datetime.datetime) -> list[Arq]:
    """The requests of a server on these providers that are in this state since before then, ours
    until we are done."""
    return locked(session, Arq.instance_uuid == server, Arq.device_rp_uuid.in_(providers),
                  Arq.state == state, Arq.updated_at < before)


def named(session: orm.Session, uuids: Collection[str]) -> list[Arq]:
    """Anybody's requests, ours until we are done."""
    return locked(session, Arq.uuid.in_(uuids))


def on_host(session: orm.Session, hostname: str) -> list[Arq]:
    """All requests that are bound to a host, ours until we are done."""
    return locked(session, Arq.hostname == hostname)


def servers_of(session: orm.Session, uuids: Collection[str]) -> set[str]:
    """The servers of requests."""
    return {uuid for uuid in session.scalars(sa.select(Arq.instance_uuid).distinct().where(
        Arq.uuid.in_(uuids), Arq.instance_uuid.is_not(None))) if uuid}


def servers_holding(session: orm.Session, ids: Collection[int]) -> set[str]:
    """The servers of requests, by row."""
    return {uuid for uuid in session.scalars(sa.select(Arq.instance_uuid).where(
        Arq.id.in_(ids))) if uuid} if ids else set()


def overdue(session: orm.Session) -> list[str]:
    """Requests whose bind should have ended by now."""
    return list(session.scalars(sa.select(Arq.uuid).where(
        Arq.state == State.BIND_STARTED, Arq.bind_deadline < models.now())))


def abandoned(session: orm.Session, lifetime: datetime.timedelta) -> list[Arq]:
    """Some requests that are older than this and were never bound, ours until we are done."""
    ids = session.scalars(
        sa.select(Arq.id).where(Arq.state == State.INITIAL,
                                Arq.created_at < models.now() - lifetime)
        .order_by(Arq.created_at).limit(ABANDONED_AT_ONCE)).all()
    # somebody may have bound one since it was read
    return locked(session, Arq.id.in_(ids), Arq.state == State.INITIAL) if ids else []


def holding(session: orm.Session, hostname: str, *which: sa.ColumnElement[bool]) -> list[Arq]:
    """Requests on a host that hold a handle which the host prepares, ours until we are done."""
    is_held = sa.select(Handle.id).where(
        Handle.arq_id == Arq.id, Handle.is_host_prepared, *which).exists()
    return locked(session, Arq.hostname == hostname,
                  Arq.state.in_((State.BOUND, State.BIND_STARTED)), is_held)


def holding_present(session: orm.Session, hostname: str,
                    handle_ids: Collection[int]) -> list[Arq]:
    """Those that hold one of these handles, which is there."""
    return holding(session, hostname, Handle.id.in_(handle_ids), Handle.is_missing.is_(False))


def starting_with(session: orm.Session, handle_ids: Collection[int]) -> list[Arq]:
    """Requests whose bind is under way and that hold one of these handles."""
    return locked(session, Arq.state == State.BIND_STARTED, Arq.id.in_(
        sa.select(Handle.arq_id).where(Handle.id.in_(handle_ids))))


def holding_generations(session: orm.Session, hostname: str,
                        handles: Collection[tuple[str, int]]) -> list[Arq]:
    """Requests that hold one of these handles, by uuid and generation, which is there."""
    return locked(
        session, Arq.hostname == hostname, Arq.state.in_((State.BOUND, State.BIND_STARTED)),
        Arq.id.in_(sa.select(Handle.arq_id).where(
            Handle.is_missing.is_(False),
            sa.tuple_(Handle.uuid, Handle.generation).in_(handles))))


_WANTED = locking(sa.or_(Arq.uuid.in_(models.any_of('uuids')),
                         Arq.instance_uuid.in_(models.any_of('instances'))))
_BY_UUID = locking(Arq.uuid.in_(models.any_of('uuids')))
_OF_INSTANCE = locking(Arq.instance_uuid == sa.bindparam('instance'))
_DELETE = sa.delete(_TABLE).where(_TABLE.c.id.in_(models.any_of('ids')))
