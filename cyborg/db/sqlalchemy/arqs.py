# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests in SQL: reading and creating them."""

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging
from cyborg.db.sqlalchemy.ledger import Ledger
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event, State

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
_ADD = sa.insert(Arq)
_TABLE = Arq.__table__
_WRITE = sa.update(_TABLE).where(
    _TABLE.c.id.in_(models.any_of('ids')), _TABLE.c.state == sa.bindparam('before'))
NOWHERE = {'hostname': None, 'device_rp_uuid': None, 'instance_uuid': None,
           'bind_deadline': None, 'is_prepared': False}


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
    return [objects.Arq.of(row, attach_handle_info=row.attach_handle_info or {})
            for row in rows]


def get(session: orm.Session, scope: Scope, uuid: str) -> objects.Arq:
    """One of them, or ArqNotFound; a foreign one is not told from one that is not there."""
    found = find(session, scope, {'uuid': uuid}, {})
    if not found:
        raise errors.ArqNotFound(uuids=uuid)
    return found[0]


def create(ledger: Ledger, groups: Sequence[dict[str, str]], project_id: str | None,
           profile: Profile | None) -> list[objects.Arq]:
    """One request per unit that the groups ask for, in their order."""
    now = models.now()
    rows = [
        {'uuid': uuidutils.generate_uuid(), 'state': State.INITIAL, 'group': group,
         'device_profile_id': profile.id if profile else None,
         'device_profile_group_id': index, 'project_id': project_id, 'created_at': now}
        for index, group in enumerate(groups) for _ in range(units(group))]
    ledger.session.execute(_ADD, rows)
    for row in rows:
        ledger.step(Arq(**row), Event.CREATE, None, State.INITIAL)
    unbound = NOWHERE | dict.fromkeys(
        ('attach_handle_type', 'attach_handle_uuid', 'reason', 'updated_at'))
    name = profile.name if profile else None
    return [objects.Arq.of(row | unbound, attach_handle_info={}, device_profile_name=name)
            for row in rows]


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


def move(ledger: Ledger, rows: Sequence[Arq], event: Event, reason: str | None = None,
         **values: object) -> None:
    """Take locked rows to the state that follows, and note the step: one compare-and-set.

    The step tells where a request was when it is taken away, and where it is otherwise.
    """
    by_state: dict[str, list[Arq]] = {}
    for row in rows:
        by_state.setdefault(row.state, []).append(row)
    for before, group in by_state.items():
        after = arq_states.after(before, event, group[0].uuid)
        for row in group:
            ledger.step(row, event, before, after, reason)
        write(ledger, group, before, after, reason=reason, **values)


def write(ledger: Ledger, rows: Sequence[Arq], before: str, after: State,
          **values: object) -> None:
    """Set state and values of rows that are still in the state before."""
    written = ledger.session.execute(_WRITE, {
        'ids': [row.id for row in rows], 'before': before, 'state': after, **values})
    if written.rowcount != len(rows):
        raise errors.BadArqState(uuid=', '.join(row.uuid for row in rows), state='changing',
                                 event=f'become {after}')
    for row in rows:
        for name, value in {'state': after, **values}.items():
            orm.attributes.set_committed_value(row, name, value)
