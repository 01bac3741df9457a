# SPDX-License-Identifier: Apache-2.0
"""Work over the whole cloud: one conductor at a time does it, and all read what it found.

The lease of a round is one compare-and-set by the database's clock. Whoever holds it may die, or
go on after it has ended, so that a round must be harmless when it is done twice.
"""

import datetime
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import models

Round = models.Round
#: seconds that a round may take, though it is done more often than that
LEASE = 60


@dataclass(frozen=True)
class Lease:
    """The right to do a round."""

    name: str
    holder: str


@dataclass(frozen=True)
class Found:
    """What the last round found, and how many seconds ago."""

    figures: dict[str, Any]
    age: float


def take(session: orm.Session, name: str, interval: float) -> Lease | float:
    """Take the lease of a round that is done so often, or tell in how many seconds it ends.

    DBDuplicateEntry if there was none and somebody else made it at the same moment.
    """
    now, until = session.execute(sa.select(
        models.database_now(),
        sa.select(Round.until).where(Round.name == name).scalar_subquery())).one()
    lease = Lease(name, f'{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}')
    values = {'holder': lease.holder, 'until': _after(now, max(interval, LEASE))}
    if until is None:
        session.execute(sa.insert(Round).values(name=name, **values))
        return lease
    is_ours = session.execute(
        sa.update(Round).where(Round.name == name, Round.until <= now).values(**values),
        execution_options={'synchronize_session': False}).rowcount
    return lease if is_ours else max((until - now).total_seconds(), 0.0)


def finish(session: orm.Session, lease: Lease, interval: float, figures: dict[str, Any]) -> None:
    """Keep what a round found, and have the next one done so much later; nothing if its lease
    has ended and somebody else has it."""
    now = session.scalar(sa.select(models.database_now()))
    session.execute(
        sa.update(Round).where(Round.name == lease.name, Round.holder == lease.holder)
        .values(until=_after(now, interval), finished_at=now, figures=figures),
        execution_options={'synchronize_session': False})


def found(session: orm.Session) -> dict[str, Found]:
    """What the last round of each name found, in one statement."""
    rows = session.execute(
        sa.select(Round.name, Round.figures, Round.finished_at, models.database_now())
        .where(Round.finished_at.is_not(None)))
    return {name: Found(figures, (now - finished_at).total_seconds())
            for name, figures, finished_at, now in rows}


def _after(now: datetime.datetime, seconds: float) -> datetime.datetime:
    return now + datetime.timedelta(seconds=seconds)
