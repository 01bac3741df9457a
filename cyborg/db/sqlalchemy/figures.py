# SPDX-License-Identifier: Apache-2.0
"""Counts rows for the metrics."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import models, nova_events, tasks
from cyborg.objects import TaskKind, TaskState


def figures(session: orm.Session, silent_since: datetime.datetime) -> dict[str, Any]:
    """Returns figures by name: a count, or counts by the value of a label."""
    is_alive = models.Agent.last_heartbeat >= silent_since
    return {
        'arqs': _by(session, models.ExtArq, models.ExtArq.state),
        'devices': _by(session, models.Device, models.Device.type),
        'devices_at_fault': _count(session, models.Device, models.Device.fault.is_not(None)),
        'devices_missing': _count(session, models.Device, models.Device.is_missing.is_(True)),
        'agents': {
            'true': _count(session, models.Agent, is_alive),
            'false': _count(session, models.Agent, sa.not_(is_alive)),
        },
        'cleanups_owed': _count(
            session,
            models.Task,
            models.Task.state == TaskState.OPEN,
            models.Task.kind.in_(tasks.HAND_BACK),
        ),
        'programmings_open': _count(
            session,
            models.Task,
            models.Task.state == TaskState.OPEN,
            models.Task.kind == TaskKind.PROGRAM,
        ),
        'handles_quarantined': _count(
            session, models.Task, models.Task.state == TaskState.QUARANTINED
        ),
        'events_waiting': _count(session, models.NovaEvent, models.NovaEvent.given_up_at.is_(None)),
        'events_given_up': nova_events.given_up(session),
    }


def _count(session: orm.Session, model: Any, *where: Any) -> int:
    return session.scalar(sa.select(sa.func.count()).select_from(model).where(*where)) or 0


def _by(session: orm.Session, model: Any, column: Any) -> dict[str, int]:
    """Returns the number of rows by value."""
    counted = sa.select(column, sa.func.count()).select_from(model).group_by(column)
    return {row[0]: row[1] for row in session.execute(counted)}
