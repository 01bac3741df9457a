# SPDX-License-Identifier: Apache-2.0
"""For how long requests were in use, summed up by the database.

A request is in use from the step that reaches a state of IN_USE to the step that leaves these
states. Each step counts with its distance from the start of the interval: the last step of such a
period is added, the first one subtracted. A period without a last step is in use now: its request
is added with the whole interval. A period without a first step began before the start, where the
distance is 0. So the sum needs no pairs of steps, and no step before the start.
"""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import clock, models
from cyborg.objects.arq_states import IN_USE

Arq = models.ExtArq
Deployable = models.Deployable
Handle = models.AttachHandle
Profile = models.DeviceProfile
Step = models.ArqTransition
MILLISECONDS_PER_HOUR = 3_600_000


def by_project(
    session: orm.Session,
    start: datetime.datetime,
    end: datetime.datetime,
    project_id: str | None = None,
) -> list[objects.ProjectUsage]:
    """Returns the usage between two moments, of one project or of all, with one statement."""
    whole = (end - start) // datetime.timedelta(milliseconds=1)
    steps, held = _steps(start, end, whole), _held(whole)
    if project_id is not None:
        steps = steps.where(Step.project_id == project_id)
        held = held.where(Arq.project_id == project_id)
    parts = sa.union_all(steps, held).subquery()
    # the steps of an earlier release do not tell what their request asked for; others of it may
    requests = (
        sa.select(
            parts.c.project_id,
            sa.func.max(parts.c.device_profile_name).label('device_profile_name'),
            sa.func.max(parts.c.resource_class).label('resource_class'),
            sa.func.sum(parts.c.milliseconds).label('milliseconds'),
        )
        .group_by(parts.c.arq_uuid, parts.c.project_id)
        .having(sa.func.sum(parts.c.milliseconds) > 0)
        .subquery()
    )
    what = [requests.c.project_id, requests.c.device_profile_name, requests.c.resource_class]
    total = sa.func.sum(requests.c.milliseconds).label('milliseconds')
    query = sa.select(*what, sa.func.count().label('requests'), total).group_by(*what)
    found = [
        objects.ProjectUsage(
            project_id=row.project_id,
            device_profile_name=row.device_profile_name,
            resource_class=row.resource_class,
            requests=row.requests,
            hours=int(row.milliseconds) / MILLISECONDS_PER_HOUR,
        )
        for row in session.execute(query)
    ]
    # here, since databases do not agree on where NULL belongs
    return sorted(found, key=_order)


def _order(usage: objects.ProjectUsage) -> tuple[str, ...]:
    return (
        usage.project_id or '',
        usage.device_profile_name or '',
        usage.resource_class or '',
    )


def _steps(
    start: datetime.datetime, end: datetime.datetime, whole: int
) -> sa.Select[*tuple[Any, ...]]:
    """The steps that begin or end a use, each with its signed distance from the start."""
    was_in_use = sa.func.coalesce(Step.from_state, '').in_(IN_USE)
    is_in_use = Step.to_state.in_(IN_USE)
    moment = sa.literal(start, clock.Moment())
    distance = sa.case(
        (Step.created_at >= end, whole),
        else_=clock.milliseconds_between(moment, Step.created_at),
    )
    return sa.select(
        Step.arq_uuid.label('arq_uuid'),
        Step.project_id.label('project_id'),
        Step.device_profile_name.label('device_profile_name'),
        Step.resource_class.label('resource_class'),
        sa.case((was_in_use, distance), else_=-distance).label('milliseconds'),
    ).where(Step.created_at > start, was_in_use != is_in_use)


def _held(whole: int) -> sa.Select[*tuple[Any, ...]]:
    """The requests that are in use now."""
    return (
        sa.select(
            Arq.uuid,
            Arq.project_id,
            sa.func.coalesce(Arq.device_profile_name, Profile.name),
            Deployable.resource_class,
            sa.literal(whole, sa.BigInteger()),
        )
        .outerjoin(Profile, Profile.id == Arq.device_profile_id)
        .outerjoin(Handle, Handle.arq_id == Arq.id)
        .outerjoin(Deployable, Deployable.id == Handle.deployable_id)
        .where(Arq.state.in_(IN_USE))
    )
