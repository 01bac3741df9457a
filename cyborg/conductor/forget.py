# SPDX-License-Identifier: Apache-2.0
"""An operator declares a host gone for good: what was known of it goes, nothing dangles."""

import datetime

import sqlalchemy as sa

from cyborg import errors
from cyborg.db.sqlalchemy import arqs, engine, models, releasing
from cyborg.db.sqlalchemy.history import Cause
from cyborg.db.sqlalchemy.ledger import Ledger


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


def forget(db: engine.Database, hostname: str) -> dict[str, int]:
    """A host is gone for good: unbind what is bound there, drop all that is known of it."""
    with db.writer() as session, Ledger(session, Cause('operator')) as ledger:
        rows = arqs.locked(session, models.ExtArq.hostname == hostname)
        releasing.unbind_rows(ledger, rows, f'Host {hostname} is gone.')
        ledger.work.clear()  # nobody is there to do it
        devices = session.scalars(
            sa.select(models.Device).where(models.Device.hostname == hostname)).all()
        for device in devices:
            session.delete(device)
        session.flush()
        session.execute(sa.delete(models.Agent).where(models.Agent.hostname == hostname))
        ledger.stale_hosts.clear()
    return {'requests unbound': len(rows), 'devices forgotten': len(devices)}
