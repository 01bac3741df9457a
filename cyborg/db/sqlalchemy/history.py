# SPDX-License-Identifier: Apache-2.0
"""The history of requests in SQL: written with each change of state."""

import datetime
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import clock, engine, models
from cyborg.objects.arq_states import Event

Transition = models.ArqTransition
PRUNED_AT_ONCE = 1000
#: without the mapper: rows are added with every change, and not used again in the session
_ADD = sa.insert(models.table(Transition))
#: built once: a bind of an administrator executes it
_OWNERS = sa.select(Transition.instance_uuid, Transition.project_id).where(
    Transition.id.in_(
        sa.select(sa.func.min(Transition.id))
        .where(
            Transition.instance_uuid.in_(models.any_of('instances')),
            Transition.project_id.is_not(None),
        )
        .group_by(Transition.instance_uuid)
    )
)


@dataclass(frozen=True)
class Cause:
    """The cause of a change: the actor and the API request."""

    actor: str
    request_id: str | None = None


class Change:
    """One step of a request, with its server, host and provider at that moment, or with those of
    the binding that was refused."""

    def __init__(
        self,
        arq: models.ExtArq,
        event: Event,
        from_state: str | None,
        to_state: str,
        reason: str | None,
        binding: objects.Binding | None = None,
    ) -> None:
        self.resource_class = next(
            (
                key.removeprefix('resources:')
                for key in arq.group or ()
                if key.startswith('resources:')
            ),
            None,
        )
        place = binding or arq
        self.row: dict[str, Any] = {
            'arq_uuid': arq.uuid,
            'project_id': arq.project_id,
            'hostname': place.hostname,
            'instance_uuid': place.instance_uuid,
            'event': event,
            'from_state': from_state,
            'to_state': to_state,
            'reason': reason,
            'device_profile_name': arq.device_profile_name,
            'resource_class': self.resource_class,
        }
        #: a fact about the request for the log and notifications, not stored with each step
        self.device_profile_id = arq.device_profile_id


def record(session: orm.Session, cause: Cause, changes: Iterable[Change]) -> engine.Proof | None:
    """Add steps to the history, in one statement; returns what builds the query that finds the
    first of them once the transaction is committed."""
    common = {'actor': cause.actor, 'request_id': cause.request_id, 'created_at': clock.now()}
    rows = [change.row | common for change in changes]
    if not rows:
        return None
    session.execute(_ADD, rows)
    return functools.partial(_find, rows[0])


def _find(row: Mapping[str, Any]) -> sa.Select[int]:
    return (
        sa.select(Transition.id)
        .limit(1)
        .where(
            *(
                getattr(Transition, name) == row[name]
                for name in ('arq_uuid', 'event', 'created_at', 'actor', 'request_id')
            )
        )
    )


def of(session: orm.Session, arq_uuid: str, project_id: str | None) -> list[objects.Transition]:
    """Returns the steps of a request in order: those of one project, or of all."""
    query = sa.select(Transition).where(Transition.arq_uuid == arq_uuid)
    if project_id is not None:
        query = query.where(Transition.project_id == project_id)
    shown: list[objects.Transition] = []
    before: datetime.datetime | None = None
    for row in session.scalars(query.order_by(Transition.id)):
        is_change = row.from_state != row.to_state
        took = (
            (row.created_at - before).total_seconds() if is_change and before is not None else None
        )
        shown.append(objects.Transition.of(row, at=row.created_at, seconds_in_state=took))
        before = row.created_at if is_change else before
    return shown


def last_reasons(session: orm.Session, uuids: Iterable[str], event: Event) -> dict[str, str | None]:
    """Returns the reason of the last step with this event, by request."""
    last = (
        sa.select(sa.func.max(Transition.id))
        .where(Transition.arq_uuid.in_(uuids), Transition.event == event)
        .group_by(Transition.arq_uuid)
    )
    rows = session.execute(
        sa.select(Transition.arq_uuid, Transition.reason).where(Transition.id.in_(last))
    )
    return {row.arq_uuid: row.reason for row in rows}


def owners(session: orm.Session, instances: Iterable[str]) -> dict[str, str]:
    """Returns the project of the first request of each server, by server."""
    rows = session.execute(_OWNERS, {'instances': list(instances)})
    return {row.instance_uuid: row.project_id for row in rows}


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Delete some old steps; returns how many."""
    # in the order of the index: with an order by id a database would read all younger rows
    ids = session.scalars(
        sa.select(Transition.id)
        .where(Transition.created_at < before)
        .order_by(Transition.created_at)
        .limit(PRUNED_AT_ONCE)
    ).all()
    if ids:
        session.execute(sa.delete(Transition).where(Transition.id.in_(ids)))
    return len(ids)
