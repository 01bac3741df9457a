# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests in SQL."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeVarTuple, cast

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import clock, models, paging
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event, State

Row = TypeVarTuple('Row')
Arq = models.ExtArq
Handle = models.AttachHandle
Profile = models.DeviceProfile

_heartbeat = models.Agent.last_heartbeat
#: the state to show: Unknown for a handle that a host with a silent agent has prepared, because
#: it may be lost
STATE = sa.case(
    (
        sa.and_(
            Handle.is_host_prepared,
            Arq.state.in_((State.BOUND, State.PROVISIONING)),
            sa.or_(
                _heartbeat.is_(None),
                _heartbeat < sa.bindparam('silent_since', type_=_heartbeat.type),
            ),
        ),
        arq_states.UNKNOWN,
    ),
    else_=Arq.state,
)
#: the server to show: none for a request whose bind has failed, though its row has the server.
#: Nova treats BindFailed as resolved and would start the server without its device; it fails a
#: server that has no requests.
SERVER = sa.case((Arq.state == State.BIND_FAILED, None), else_=Arq.instance_uuid)
#: named as the fields of objects.Arq, so that one query row is one object
ALL = (
    sa.select(
        Arq.uuid,
        Arq.device_profile_group_id,
        Arq.group,
        Arq.hostname,
        Arq.device_rp_uuid,
        SERVER.label('instance_uuid'),
        Arq.project_id,
        Arq.reason,
        Arq.created_at,
        Arq.updated_at,
        Profile.name.label('device_profile_name'),
        Handle.type.label('attach_handle_type'),
        Handle.uuid.label('attach_handle_uuid'),
        Handle.info.label('attach_handle_info'),
        STATE.label('state'),
    )
    .select_from(Arq)
    .outerjoin(Profile, Arq.device_profile_id == Profile.id)
    .outerjoin(Handle, Handle.arq_id == Arq.id)
    .outerjoin(models.Agent, models.Agent.hostname == Arq.hostname)
)
FILTERS = {
    'uuid': Arq.uuid,
    'instance_uuid': Arq.instance_uuid,
    'hostname': Arq.hostname,
    'device_rp_uuid': Arq.device_rp_uuid,
    'project_id': Arq.project_id,
    'device_profile_name': Profile.name,
    'state': STATE,
}
#: the key of a group that names the target of its units, and the values that do not attach them
#: to the guest
ATTACH_TARGET, NO_GUEST = 'accel:attach_target', ('host', 'none')
_ADD = sa.insert(Arq)
_TABLE = models.table(Arq)
_WRITE = sa.update(_TABLE).where(
    _TABLE.c.id.in_(models.any_of('ids')), _TABLE.c.state == sa.bindparam('before')
)
#: how many abandoned requests one transaction deletes
ABANDONED_AT_ONCE = 100
NOWHERE = {'hostname': None, 'device_rp_uuid': None, 'instance_uuid': None, 'bind_deadline': None}


@dataclass(frozen=True)
class Scope:
    """The requests that a caller may see."""

    project_id: str | None  #: None: those of all projects
    silent_since: datetime.datetime  #: agents without a heartbeat since then are down

    def limit(self, query: sa.Select[*Row]) -> sa.Select[*Row]:
        return query if self.project_id is None else query.where(Arq.project_id == self.project_id)

    def covers(self, arq: Arq) -> bool:
        return self.project_id in (None, arq.project_id)


def find(
    session: orm.Session, scope: Scope, filters: paging.Filters, page: paging.Page
) -> list[objects.Arq]:
    """Returns one page of the requests that match."""
    query = scope.limit(ALL)
    if filters.get('instance_uuid'):
        query = query.where(Arq.state != State.BIND_FAILED)
    query = paging.page_of(session, query, Arq, FILTERS, filters, page)
    rows = session.execute(query, {'silent_since': scope.silent_since})
    return [
        objects.Arq.of(
            row,
            attach_handle_info=row.attach_handle_info or {},
            attach_handle_type=_shown_type(row),
        )
        for row in rows
    ]


def _shown_type(row: Any) -> str | None:
    """Returns the type to show. Nova does not attach a handle of a type that it does not know."""
    is_kept_from_guest = row.group.get(ATTACH_TARGET) in NO_GUEST
    return (
        objects.HandleType.TEST_PCI
        if row.attach_handle_type and is_kept_from_guest
        else row.attach_handle_type
    )


def get(session: orm.Session, scope: Scope, uuid: str) -> objects.Arq:
    """Returns one request; raises ArqNotFound also for one that the caller may not see."""
    found = find(session, scope, {'uuid': uuid}, {})
    if not found:
        raise errors.ArqNotFound(uuids=uuid)
    return found[0]


def insert(
    session: orm.Session,
    groups: Sequence[dict[str, str]],
    project_id: str | None,
    profile: Profile | None,
) -> list[dict[str, Any]]:
    """Store one new request per unit that the groups ask for, in their order; returns the rows."""
    now = clock.now()
    rows = [
        {
            'uuid': uuidutils.generate_uuid(),
            'state': State.INITIAL,
            'group': group,
            'device_profile_id': profile.id if profile else None,
            'device_profile_name': profile.name if profile else None,
            'device_profile_group_id': index,
            'project_id': project_id,
            'created_at': now,
        }
        for index, group in enumerate(groups)
        for _ in range(units(group))
    ]
    session.execute(_ADD, rows)
    return rows


def units(group: dict[str, str]) -> int:
    """Returns how many attachable units a profile group asks for."""
    return sum(int(value) for key, value in group.items() if key.startswith('resources:'))


def count(session: orm.Session, project_id: str | None) -> int:
    """Returns how many requests a project has, in whatever state. None: those of no project."""
    query = sa.select(sa.func.count()).select_from(Arq).where(Arq.project_id == project_id)
    return session.scalars(query).one()


# -- rows to be changed ----------------------------------------------------------------------


def locking(*where: sa.ColumnElement[bool]) -> sa.Select[Arq]:
    """Returns a query that locks rows and reads their current values.

    All transactions lock in the order of the ids. SQLite needs no lock: it has one writer.
    """
    return (
        sa.select(Arq)
        .where(*where)
        .order_by(Arq.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )


def locked(session: orm.Session, *where: sa.ColumnElement[bool]) -> list[Arq]:
    """Returns rows, locked."""
    return list(session.scalars(locking(*where)))


def locked_by(
    session: orm.Session, query: sa.Select[Arq], scope: Scope, **given: Collection[str]
) -> list[Arq]:
    """Returns rows, locked, by a prepared query and its parameters."""
    return list(session.scalars(scope.limit(query), given))


def require_all(rows: Sequence[Arq], uuids: Collection[str]) -> None:
    """Raises ArqNotFound for uuids that are not among the rows."""
    if missing := set(uuids) - {row.uuid for row in rows}:
        raise errors.ArqNotFound(uuids=', '.join(sorted(missing)))


def write(
    session: orm.Session,
    rows: Sequence[Arq],
    event: Event,
    before: str,
    after: State,
    **values: object,
) -> None:
    """Set the state after an event, and values, of rows whose state is still the one before."""
    written = session.execute(
        _WRITE, {'ids': [row.id for row in rows], 'before': before, 'state': after, **values}
    )
    if models.matched(written) != len(rows):
        raise errors.BadArqState(
            uuid=', '.join(row.uuid for row in rows), state=f'no longer {before}', event=event
        )
    for row in rows:
        for name, value in {'state': after, **values}.items():
            orm.attributes.set_committed_value(row, name, value)


def delete(session: orm.Session, rows: Sequence[Arq]) -> None:
    """Delete rows."""
    session.execute(_DELETE, {'ids': [row.id for row in rows]})


# -- which rows ------------------------------------------------------------------------------


def wanted(session: orm.Session, uuids: Collection[str], instances: Collection[str]) -> list[Arq]:
    """Returns these requests and all others of these servers, locked."""
    return list(session.scalars(_WANTED, {'uuids': list(uuids), 'instances': list(instances)}))


def of_servers(session: orm.Session, instances: Collection[str]) -> list[Arq]:
    """Returns all requests of servers, locked."""
    return locked(session, Arq.instance_uuid.in_(instances)) if instances else []


def of_instance(session: orm.Session, instance: str, hostname: str | None = None) -> list[Arq]:
    """Returns all requests of a server, on one host or on all, locked."""
    query = _OF_INSTANCE.where(Arq.hostname == hostname) if hostname else _OF_INSTANCE
    return list(session.scalars(query, {'instance': instance}))


def by_uuids(session: orm.Session, scope: Scope, uuids: Collection[str]) -> list[Arq]:
    """Returns requests that the caller may see, locked."""
    return locked_by(session, _BY_UUID, scope, uuids=list(uuids))


def by_ids(session: orm.Session, ids: Collection[int]) -> list[Arq]:
    """Returns requests by id, locked."""
    return locked(session, Arq.id.in_(ids)) if ids else []


def in_states(session: orm.Session, uuid: str, states: Collection[State]) -> list[Arq]:
    """Returns a request, locked, if it is in one of these states."""
    return locked(session, Arq.uuid == uuid, Arq.state.in_(states))


def in_other_states(session: orm.Session, arq_id: int, states: Collection[State]) -> list[Arq]:
    """Returns a request, locked, if it is in none of these states."""
    return locked(session, Arq.id == arq_id, Arq.state.not_in(states))


def of_server_since(
    session: orm.Session,
    server: str,
    providers: Collection[str],
    states: Collection[State],
    before: datetime.datetime,
) -> list[Arq]:
    """Returns the requests of a server on these providers that have been in one of these states
    since before then, locked."""
    return locked(
        session,
        Arq.instance_uuid == server,
        Arq.device_rp_uuid.in_(providers),
        Arq.state.in_(states),
        Arq.updated_at < before,
    )


def changed_since(
    session: orm.Session, states: Collection[State], since: datetime.datetime
) -> dict[str, list[str]]:
    """Returns the requests of each server that are in one of these states and have changed since
    then: uuids by server."""
    query = sa.select(Arq.instance_uuid, Arq.uuid).where(
        Arq.state.in_(states), Arq.updated_at >= since, Arq.instance_uuid.is_not(None)
    )
    found: dict[str, list[str]] = {}
    for server, uuid in session.execute(query.order_by(Arq.id)):
        found.setdefault(cast(str, server), []).append(uuid)
    return found


def named(session: orm.Session, uuids: Collection[str]) -> list[Arq]:
    """Returns requests of any project, locked."""
    return locked(session, Arq.uuid.in_(uuids))


def on_host(session: orm.Session, hostname: str) -> list[Arq]:
    """Returns all requests on a host, locked."""
    return locked(session, Arq.hostname == hostname)


def servers_of(session: orm.Session, uuids: Collection[str]) -> set[str]:
    """Returns the servers of requests, by uuid."""
    return {
        uuid
        for uuid in session.scalars(
            sa.select(Arq.instance_uuid)
            .distinct()
            .where(Arq.uuid.in_(uuids), Arq.instance_uuid.is_not(None))
        )
        if uuid
    }


def servers_holding(session: orm.Session, ids: Collection[int]) -> set[str]:
    """Returns the servers of requests, by id."""
    return (
        {
            uuid
            for uuid in session.scalars(sa.select(Arq.instance_uuid).where(Arq.id.in_(ids)))
            if uuid
        }
        if ids
        else set()
    )


def servers_on_device(session: orm.Session, device_id: int) -> set[str]:
    """Returns the servers that hold a part of a device."""
    held = (
        sa.select(Arq.instance_uuid)
        .join(models.AttachHandle, models.AttachHandle.arq_id == Arq.id)
        .join(models.Deployable, models.Deployable.id == models.AttachHandle.deployable_id)
        .where(models.Deployable.device_id == device_id, Arq.instance_uuid.is_not(None))
    )
    return {uuid for uuid in session.scalars(held) if uuid}


def overdue(session: orm.Session) -> list[str]:
    """Returns requests whose bind deadline has passed."""
    return list(
        session.scalars(
            sa.select(Arq.uuid).where(
                Arq.state == State.BIND_STARTED, Arq.bind_deadline < clock.now()
            )
        )
    )


def abandoned(session: orm.Session, lifetime: datetime.timedelta) -> list[Arq]:
    """Returns some requests that are older than this and were never bound, locked."""
    ids = session.scalars(
        sa.select(Arq.id)
        .where(Arq.state == State.INITIAL, Arq.created_at < clock.now() - lifetime)
        .order_by(Arq.created_at)
        .limit(ABANDONED_AT_ONCE)
    ).all()
    # one may have been bound since it was read
    return locked(session, Arq.id.in_(ids), Arq.state == State.INITIAL) if ids else []


def holding(session: orm.Session, hostname: str, *which: sa.ColumnElement[bool]) -> list[Arq]:
    """Returns requests on a host that hold a host-prepared handle, locked."""
    is_held = (
        sa.select(Handle.id)
        .where(Handle.arq_id == Arq.id, Handle.is_host_prepared, *which)
        .exists()
    )
    return locked(
        session, Arq.hostname == hostname, Arq.state.in_((State.BOUND, State.BIND_STARTED)), is_held
    )


def holding_present(session: orm.Session, hostname: str, handle_ids: Collection[int]) -> list[Arq]:
    """Returns requests that hold one of these handles, if it is present, locked."""
    return holding(session, hostname, Handle.id.in_(handle_ids), Handle.is_missing.is_(False))


def starting_with(session: orm.Session, handle_ids: Collection[int]) -> list[Arq]:
    """Returns requests in BindStarted that hold one of these handles, locked."""
    return locked(
        session,
        Arq.state == State.BIND_STARTED,
        Arq.id.in_(sa.select(Handle.arq_id).where(Handle.id.in_(handle_ids))),
    )


def holding_generations(
    session: orm.Session, hostname: str, handles: Collection[tuple[str, int]]
) -> list[Arq]:
    """Returns requests that hold one of these present handles, by uuid and generation, locked."""
    return locked(
        session,
        Arq.hostname == hostname,
        Arq.state.in_((State.BOUND, State.BIND_STARTED)),
        Arq.id.in_(
            sa.select(Handle.arq_id).where(
                Handle.is_missing.is_(False), sa.tuple_(Handle.uuid, Handle.generation).in_(handles)
            )
        ),
    )


_WANTED = locking(
    sa.or_(Arq.uuid.in_(models.any_of('uuids')), Arq.instance_uuid.in_(models.any_of('instances')))
)
_BY_UUID = locking(Arq.uuid.in_(models.any_of('uuids')))
_OF_INSTANCE = locking(Arq.instance_uuid == sa.bindparam('instance'))
_DELETE = sa.delete(_TABLE).where(_TABLE.c.id.in_(models.any_of('ids')))
