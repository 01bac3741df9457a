# SPDX-License-Identifier: Apache-2.0
"""Queries of the audit: rows that may disagree, and the rows of a host to compare with Placement
and Nova."""

import datetime
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import clock, models
from cyborg.objects import TaskKind, TaskState
from cyborg.objects.arq_states import State

Arq = models.ExtArq
Handle = models.AttachHandle
Task = models.Task
Deployable = models.Deployable
Device = models.Device
NovaEvent = models.NovaEvent

#: tuples of the columns that the function names
Rows = Sequence[Any]


def handles_held_in(session: orm.Session, states: Collection[State]) -> Rows:
    """Returns the handles that requests in these states hold: uuid of the handle; id, uuid and
    state of the request."""
    return session.execute(
        sa.select(Handle.uuid, Arq.id, Arq.uuid, Arq.state)
        .join(Arq, Handle.arq_id == Arq.id)
        .where(Arq.state.in_(states))
    ).all()


def wrongly_holding(session: orm.Session, states: Collection[State]) -> Rows:
    """Returns the requests in these states without a handle, or with a handle of another provider:
    uuid, state and provider of the request; id and provider of the handle."""
    return session.execute(
        sa.select(Arq.uuid, Arq.state, Arq.device_rp_uuid, Handle.id, Deployable.rp_uuid)
        .outerjoin(Handle, Handle.arq_id == Arq.id)
        .outerjoin(Deployable, Handle.deployable_id == Deployable.id)
        .where(
            Arq.state.in_(states),
            sa.or_(Handle.id.is_(None), Deployable.rp_uuid != Arq.device_rp_uuid),
        )
    ).all()


def unchanged(session: orm.Session, states: Collection[State], before: datetime.datetime) -> Rows:
    """Returns the requests that have been in one of these states since before then: uuid, state
    and the time of the last change."""
    since = sa.func.coalesce(Arq.updated_at, Arq.created_at, type_=clock.Moment)
    return session.execute(
        sa.select(Arq.uuid, Arq.state, since)
        .where(Arq.state.in_(states), since < before)
        .order_by(Arq.id)
    ).all()


def overdue_binds(session: orm.Session, before: datetime.datetime) -> list[str]:
    """Returns the requests whose bind should have ended before then."""
    return list(
        session.scalars(
            sa.select(Arq.uuid)
            .where(Arq.state == State.BIND_STARTED, Arq.bind_deadline < before)
            .order_by(Arq.id)
        )
    )


def waiting_for_clean_up(session: orm.Session, before: datetime.datetime) -> Rows:
    """Returns the handles that have waited for cleaning since before then: uuid, host, failed
    attempts and the last error."""
    return session.execute(
        sa.select(Task.handle_uuid, Task.hostname, Task.attempts, Task.error)
        .where(
            Task.state == TaskState.OPEN,
            Task.created_at < before,
            Task.kind.in_((TaskKind.RELEASE, TaskKind.CLEAN)),
        )
        .order_by(Task.id)
    ).all()


def quarantined(session: orm.Session) -> Rows:
    """Returns the handles that could not be cleaned: uuid, host and the error."""
    return session.execute(
        sa.select(Task.handle_uuid, Task.hostname, Task.error)
        .where(Task.state == TaskState.QUARANTINED)
        .order_by(Task.id)
    ).all()


def waiting_for_image(session: orm.Session, before: datetime.datetime) -> Rows:
    """Returns the deployables that have waited for an image since before then: uuid, image and
    host."""
    return session.execute(
        sa.select(
            Task.deployable_uuid, sa.func.coalesce(Task.image_uuid, Task.image), Task.hostname
        )
        .where(
            Task.state == TaskState.OPEN, Task.created_at < before, Task.kind == TaskKind.PROGRAM
        )
        .order_by(Task.id)
    ).all()


def count_waiting_events(session: orm.Session, before: datetime.datetime) -> int:
    """Returns how many events have been in the outbox since before then."""
    return (
        session.scalar(
            sa.select(sa.func.count())
            .select_from(NovaEvent)
            .where(NovaEvent.created_at < before, NovaEvent.given_up_at.is_(None))
        )
        or 0
    )


def next_host(session: orm.Session, hostname: str) -> str | None:
    """Returns the host that follows this one among those with devices or requests."""
    following = sa.union_all(
        *(
            sa.select(sa.func.min(column).label('hostname')).where(column > hostname)
            for column in (Device.hostname, Arq.hostname)
        )
    ).subquery()
    found: str | None = session.scalar(sa.select(sa.func.min(following.c.hostname)))
    return found


def providers_by_server(
    session: orm.Session, hostname: str, states: Collection[State], before: datetime.datetime
) -> dict[str, set[str]]:
    """Returns the servers whose requests on a host have been in one of these states since before
    then, with the providers of the requests."""
    found: dict[str, set[str]] = {}
    for server, provider in session.execute(
        sa.select(Arq.instance_uuid, Arq.device_rp_uuid).where(
            Arq.hostname == hostname, Arq.state.in_(states), Arq.updated_at < before
        )
    ):
        found.setdefault(str(server), set()).add(str(provider))
    return found


def servers_by_provider(session: orm.Session, hostname: str) -> dict[str, set[str]]:
    """Returns the providers of a host, with the servers that have requests on each."""
    found: dict[str, set[str]] = {
        str(provider): set()
        for provider in session.scalars(
            sa.select(Deployable.rp_uuid).join(Deployable.device).where(Device.hostname == hostname)
        )
    }
    for server, provider in session.execute(
        sa.select(Arq.instance_uuid, Arq.device_rp_uuid).where(
            Arq.hostname == hostname, Arq.instance_uuid.is_not(None)
        )
    ):
        found.setdefault(str(provider), set()).add(str(server))
    return found
