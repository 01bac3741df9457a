# SPDX-License-Identifier: Apache-2.0
"""How a request lets go: at once, whatever the host does; what must be cleaned waits for it."""

import datetime
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import arqs, attach_handles, models
from cyborg.db.sqlalchemy.ledger import Ledger
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event, State

Arq = models.ExtArq
#: how many requests that nobody bound one transaction deletes
ABANDONED_AT_ONCE = 100

_BY_UUID = arqs.locking(Arq.uuid.in_(models.any_of('uuids')))
_OF_INSTANCE = arqs.locking(Arq.instance_uuid == sa.bindparam('instance'))
_DELETE = sa.delete(Arq.__table__).where(Arq.__table__.c.id.in_(models.any_of('ids')))


def unbind(ledger: Ledger, scope: arqs.Scope, uuids: Collection[str]) -> None:
    """Unbound now; what is so already stays so."""
    rows = arqs.locked_by(ledger.session, _BY_UUID, scope, uuids=list(uuids))
    arqs.require_all(rows, uuids)
    unbind_rows(ledger, rows)


def unbind_rows(ledger: Ledger, rows: Sequence[Arq], reason: str | None = None) -> None:
    """Unbind locked rows."""
    rows = [row for row in rows if row.state != State.UNBOUND]
    let_go(ledger, rows)
    arqs.move(ledger, rows, Event.UNBIND, reason, **arqs.NOWHERE)


def delete(ledger: Ledger, scope: arqs.Scope, uuids: Collection[str], *,
           even_bound: bool) -> list[str]:
    """Delete those that exist; answers which do not."""
    rows = arqs.locked_by(ledger.session, _BY_UUID, scope, uuids=list(uuids))
    if not even_bound and any(
            row.instance_uuid and row.state != State.BIND_FAILED for row in rows):
        raise errors.ServiceTokenRequired(action='Deleting a bound accelerator request')
    delete_rows(ledger, rows)
    return sorted(set(uuids) - {row.uuid for row in rows})


def delete_of_instance(ledger: Ledger, instance_uuid: str, hostname: str | None = None) -> int:
    """Delete a server's requests, on one host or wherever; returns how many there were.

    Only services do this, when the server goes: nothing of it may stay, whosever it is.
    """
    rows = locked_of_instance(ledger.session, instance_uuid, hostname)
    delete_rows(ledger, rows)
    return len(rows)


def locked_of_instance(session: orm.Session, instance_uuid: str,
                       hostname: str | None = None) -> list[Arq]:
    """A server's requests, on one host or wherever, ours until we are done."""
    query = _OF_INSTANCE.where(Arq.hostname == hostname) if hostname else _OF_INSTANCE
    return list(session.scalars(query, {'instance': instance_uuid}))


def delete_abandoned(ledger: Ledger, lifetime: datetime.timedelta) -> int:
    """Delete requests that are older than this and were never bound, some at a time; returns
    how many. The client that made them is gone, and they keep their profile from being deleted.
    """
    ids = ledger.session.scalars(
        sa.select(Arq.id).where(Arq.state == State.INITIAL,
                                Arq.created_at < models.now() - lifetime)
        .order_by(Arq.created_at).limit(ABANDONED_AT_ONCE)).all()
    # somebody may have bound one since it was read
    rows = arqs.locked(ledger.session, Arq.id.in_(ids), Arq.state == State.INITIAL) if ids else []
    delete_rows(ledger, rows,
                f'Its client did not bind it within {lifetime.total_seconds():.0f} seconds.')
    return len(rows)


def delete_rows(ledger: Ledger, rows: Sequence[Arq], reason: str | None = None) -> None:
    """Delete locked rows."""
    let_go(ledger, rows)
    for row in rows:
        after = arq_states.after(row.state, Event.DELETE, row.uuid)
        ledger.step(row, Event.DELETE, row.state, after, reason)
    if rows:
        ledger.session.execute(_DELETE, {'ids': [row.id for row in rows]})


def let_go(ledger: Ledger, rows: Sequence[Arq]) -> None:
    """Free the handles of these."""
    if not rows:
        return
    handles = attach_handles.held_by_any(ledger.session, [row.id for row in rows])
    for handle in handles:
        device = handle.deployable.device
        if handle.is_host_prepared:
            ledger.assign(device.hostname, attach_handles.work(handle, objects.WorkKind.DETACH))
        elif handle.is_missing or device.fault or device.status != objects.DeviceStatus.ENABLED:
            # others may have waited for it: parts of the same card, or of its IOMMU group
            ledger.stale_hosts.add(device.hostname)
    if handles:
        attach_handles.release(ledger.session, handles)
