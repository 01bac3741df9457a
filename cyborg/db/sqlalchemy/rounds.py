# SPDX-License-Identifier: Apache-2.0
"""Periodic rounds over the whole cloud: one conductor at a time does one, all read its figures.

The lease of a round is taken by one compare-and-set, by the database's clock. Its holder may die,
or continue after the lease has ended, so a round must be harmless when it is done twice.
"""

import datetime
import os
import secrets
import socket
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import clock, models

Round = models.Round
#: the shortest lease in seconds: a round may take longer than its interval
LEASE = 60


@dataclass(frozen=True)
class Lease:
    """The right to do a round."""

    name: str
    holder: str


@dataclass(frozen=True)
class Found:
    """The figures of the last round, and how many seconds ago it ended."""

    figures: dict[str, Any]
    age: float


def take(session: orm.Session, name: str, interval: float) -> Lease | float:
    """Take the lease of a round; returns the seconds until the present lease ends if another
    conductor holds it.

    Raises DBDuplicateEntry if two conductors create the first lease at the same moment.
    """
    asked = clock.local_now()
    now, until = session.execute(
        sa.select(
            clock.database_now(),
            sa.select(Round.until).where(Round.name == name).scalar_subquery(),
        )
    ).one()
    clock.follow(now, asked)
    lease = Lease(name, f'{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(8)}')
    values = {'holder': lease.holder, 'until': _after(now, max(interval, LEASE))}
    if until is None:
        session.execute(sa.insert(Round).values(name=name, **values))
        return lease
    is_ours = models.matched(
        session.execute(
            sa.update(Round).where(Round.name == name, Round.until <= now).values(**values),
            execution_options={'synchronize_session': False},
        )
    )
    return lease if is_ours else max((until - now).total_seconds(), 0.0)


def finish(session: orm.Session, lease: Lease, interval: float, figures: dict[str, Any]) -> None:
    """Store the figures of a round, and make the next one due after the interval. Does nothing if
    another conductor has taken the lease."""
    now = session.scalars(sa.select(clock.database_now())).one()
    session.execute(
        sa.update(Round)
        .where(Round.name == lease.name, Round.holder == lease.holder)
        .values(until=_after(now, interval), finished_at=now, figures=figures),
        execution_options={'synchronize_session': False},
    )


def found(session: orm.Session) -> dict[str, Found]:
    """Returns the outcome of the last round of each name, with one statement."""
    rows = session.execute(
        sa.select(Round.name, Round.figures, Round.finished_at, clock.database_now()).where(
            Round.finished_at.is_not(None)
        )
    )
    return {
        name: Found(figures, (now - finished_at).total_seconds())
        for name, figures, finished_at, now in rows
    }


def _after(now: datetime.datetime, seconds: float) -> datetime.datetime:
    return now + datetime.timedelta(seconds=seconds)
