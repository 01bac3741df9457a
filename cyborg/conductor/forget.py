# SPDX-License-Identifier: Apache-2.0
"""An operator declares a host gone for good: what was known of it goes, nothing dangles."""

import datetime
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors
from cyborg.db.sqlalchemy import arqs, engine, inventory, models, releasing
from cyborg.db.sqlalchemy.history import Cause
from cyborg.db.sqlalchemy.ledger import transact


def require_gone(db: engine.Database, hostname: str, silent_since: datetime.datetime) -> None:
    """Refuse to forget a host whose agent lives: it would only come back."""
    with db.reader() as session:
        beat = session.scalar(sa.select(models.Agent.last_heartbeat).where(
            models.Agent.hostname == hostname))
        known = beat or session.scalar(sa.select(models.Device.id).where(
            models.Device.hostname == hostname).limit(1))
    if not known:
        raise errors.NotFound(f'There is no host {hostname}.')
    if beat is not None and beat >= silent_since:
        raise errors.Conflict(
            f'The agent of {hostname} was heard of at {beat:%H:%M:%S} UTC: stop it first.')


@engine.retried
def forget(db: engine.Database, hostname: str) -> dict[str, int]:
    """A host is gone for good: unbind what is bound there, drop all that is known of it.

    Binds may go on meanwhile. One that took a handle before we had it for ourselves is unbound
    like the others; one that comes later finds nothing to take.
    """
    with transact(db, Cause('operator')) as ledger:
        session = ledger.session
        # first, so that a report of the host waits until we are done
        session.execute(sa.delete(models.Agent).where(models.Agent.hostname == hostname))
        rows = arqs.locked(session, models.ExtArq.hostname == hostname)
        devices = inventory.load(session, hostname)
        rows += _late_holders(session, devices, rows)
        releasing.unbind_rows(ledger, rows, f'Host {hostname} is gone.')
        ledger.work.clear()  # nobody is there to do it
        for device in devices:
            session.delete(device)
        session.execute(sa.delete(models.DividedCard).where(
            models.DividedCard.hostname == hostname))
        ledger.stale_hosts.clear()
    return {'requests unbound': len(rows), 'devices forgotten': len(devices)}


def _late_holders(session: orm.Session, devices: Sequence[models.Device],
                  rows: Sequence[models.ExtArq]) -> list[models.ExtArq]:
    """Have all handles of these devices for ourselves; answers who holds one and is not among
    the rows."""
    handles = [handle for device in devices for part in device.deployables
               for handle in part.attach_handles]
    inventory.lock(handles)
    late = {handle.arq_id for handle in handles} - {None, *(row.id for row in rows)}
    return arqs.locked(session, models.ExtArq.id.in_(late)) if late else []
