# SPDX-License-Identifier: Apache-2.0
"""The outbox of events to Nova: written with the state they tell of, sent afterwards."""

import datetime
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg.db.sqlalchemy import models

Event = models.NovaEvent


def add(session: orm.Session, told: Iterable[tuple[models.ExtArq, str]],
        request_id: str | None = None) -> None:
    """Put events, a request and its status each, into the outbox."""
    now = models.now()
    rows = [{'instance_uuid': arq.instance_uuid, 'arq_uuid': arq.uuid, 'status': status,
             'request_id': request_id, 'due_at': now, 'created_at': now}
            for arq, status in told]
    if rows:
        session.execute(sa.insert(Event), rows)


def claim(session: orm.Session, until: datetime.datetime, most: int) -> list[Event]:
    """Take events that are due; nobody else gets them before ``until``."""
    now, mark = models.now(), uuidutils.generate_uuid()
    ids = session.scalars(sa.select(Event.id).where(Event.due_at <= now)
                          .order_by(Event.id).limit(most)).all()
    if not ids:
        return []
    session.execute(
        sa.update(Event).where(Event.id.in_(ids), Event.due_at <= now)
        .values(claim=mark, due_at=until, attempts=Event.attempts + 1),
        execution_options={'synchronize_session': False})
    return list(session.scalars(
        sa.select(Event).where(Event.claim == mark).order_by(Event.id)))


def remove(session: orm.Session, ids: Sequence[int]) -> None:
    """Forget events that Nova has heard, or will never want to hear."""
    session.execute(sa.delete(Event).where(Event.id.in_(ids)))


def postpone(session: orm.Session, ids: Sequence[int], due_at: datetime.datetime) -> None:
    """Try these again, not before then."""
    session.execute(sa.update(Event).where(Event.id.in_(ids)).values(due_at=due_at, claim=None))


def forget(session: orm.Session, arq_uuids: Sequence[str]) -> None:
    """Drop what is no longer true of these requests."""
    session.execute(sa.delete(Event).where(Event.arq_uuid.in_(arq_uuids)))
