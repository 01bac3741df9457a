# SPDX-License-Identifier: Apache-2.0
"""Who did what to a request, and when: written with each change of state."""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import models
from cyborg.objects.arq_states import Event

Transition = models.ArqTransition
PRUNED_AT_ONCE = 1000
#: to the table itself: it is written with every change, and nobody keeps what was written
_ADD = sa.insert(Transition.__table__)


@dataclass(frozen=True)
class Cause:
    """On whose account something happens."""

    actor: str
    request_id: str | None = None


class Change:
    """One request's step, with where the request was at that moment."""

    def __init__(self, arq: models.ExtArq, event: Event, from_state: str | None, to_state: str,
                 reason: str | None) -> None:
        self.row = {
            'arq_uuid': arq.uuid, 'project_id': arq.project_id, 'hostname': arq.hostname,
            'instance_uuid': arq.instance_uuid, 'event': event, 'from_state': from_state,
            'to_state': to_state, 'reason': reason}


def record(session: orm.Session, cause: Cause, changes: Iterable[Change]) -> sa.Select | None:
    """Add steps to the history, in one statement; returns the query that finds the first of them
    once the transaction is committed."""
    common = {'actor': cause.actor, 'request_id': cause.request_id,
              'created_at': models.now()}
    rows = [change.row | common for change in changes]
    if not rows:
        return None
    session.execute(_ADD, rows)
    return sa.select(Transition.id).limit(1).where(*(
        getattr(Transition, name) == rows[0][name]
        for name in ('arq_uuid', 'event', 'created_at', 'actor', 'request_id')))


def of(session: orm.Session, arq_uuid: str,
       project_id: str | None) -> list[objects.Transition]:
    """The steps of a request, first to last; those of a project, or anybody's."""
    query = sa.select(Transition).where(Transition.arq_uuid == arq_uuid)
    if project_id is not None:
        query = query.where(Transition.project_id == project_id)
    shown, before = [], None
    for row in session.scalars(query.order_by(Transition.id)):
        is_change = row.from_state != row.to_state
        took = ((row.created_at - before).total_seconds()
                if is_change and before is not None else None)
        shown.append(objects.Transition.of(row, at=row.created_at, seconds_in_state=took))
        before = row.created_at if is_change else before
    return shown


def owners(session: orm.Session, instances: Iterable[str]) -> dict[str, str]:
    """The project that was the first to have requests of a server, by server."""
    first = sa.select(sa.func.min(Transition.id)).where(
        Transition.instance_uuid.in_(instances), Transition.project_id.is_not(None)
    ).group_by(Transition.instance_uuid)
    rows = session.execute(sa.select(Transition.instance_uuid, Transition.project_id).where(
        Transition.id.in_(first)))
    return {row.instance_uuid: row.project_id for row in rows}


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Forget old steps, some at a time; answers how many went."""
    # in the order of the index: by their ids, a database would look at all that are younger
    ids = session.scalars(sa.select(Transition.id).where(Transition.created_at < before)
                          .order_by(Transition.created_at).limit(PRUNED_AT_ONCE)).all()
    if ids:
        session.execute(sa.delete(Transition).where(Transition.id.in_(ids)))
    return len(ids)
