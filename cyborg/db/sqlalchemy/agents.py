# SPDX-License-Identifier: Apache-2.0
"""Agents in SQL: which are alive, and whether the stored report of a host is its latest."""

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import clock, models, paging

Agent = models.Agent
NO_DIGEST = ''  #: differs from every digest, so that the next heartbeat asks for a report
#: values of ``withdrawal``: the devices of a silent agent are being reserved, or are reserved
RESERVING, RESERVED = 'reserving', 'reserved'


@dataclass(frozen=True)
class Beat:
    """The result of a heartbeat."""

    #: the stored report is the agent's latest, and a conductor of this release has stored it
    is_current: bool = False
    #: the agent counted as down until now
    was_silent: bool = False


@dataclass(frozen=True)
class Known:
    """The state of an agent before its next report."""

    uuid: str
    last_heartbeat: datetime.datetime
    is_ready: bool
    drivers: list[dict[str, Any]]
    disabled_reason: str | None


def beat(session: orm.Session, hostname: str, digest: str, silent_since: datetime.datetime) -> Beat:
    """Record a heartbeat, with one statement if nothing has changed."""
    lives = sa.update(Agent).where(Agent.hostname == hostname).values(last_heartbeat=clock.now())
    is_usual = sa.and_(
        Agent.digest == digest,
        Agent.stored_sequence == Agent.sequence,
        Agent.last_heartbeat >= silent_since,
    )
    if models.matched(session.execute(lives.where(is_usual))):
        return Beat(is_current=True)
    row = session.execute(
        sa.select(Agent.digest, Agent.sequence, Agent.stored_sequence, Agent.last_heartbeat).where(
            Agent.hostname == hostname
        )
    ).one_or_none()
    if row is None:
        return Beat()
    # until the report of an agent that was restarted, its devices stay reserved: see returned()
    is_outdated = sa.and_(Agent.withdrawal.is_not(None), Agent.digest != digest)
    kept = sa.case((is_outdated, NO_DIGEST), else_=Agent.digest)
    session.execute(lives.values(digest=kept))
    is_current = row.digest == digest and row.stored_sequence == row.sequence
    return Beat(is_current, row.last_heartbeat < silent_since)


def known(session: orm.Session, hostname: str) -> Known | None:
    """Returns the state of the agent of a host; None if it has never reported."""
    row = session.execute(
        sa.select(
            Agent.uuid,
            Agent.last_heartbeat,
            Agent.is_ready,
            Agent.drivers,
            Agent.disabled_reason,
        ).where(Agent.hostname == hostname)
    ).one_or_none()
    return None if row is None else Known(*row)


def fallen_silent(
    session: orm.Session, since: datetime.datetime | None, until: datetime.datetime
) -> dict[str, str]:
    """Returns the agents whose last heartbeat was between two moments: uuid by host."""
    query = sa.select(Agent.hostname, Agent.uuid).where(Agent.last_heartbeat < until)
    if since is not None:
        query = query.where(Agent.last_heartbeat >= since)
    return {row.hostname: row.uuid for row in session.execute(query.order_by(Agent.hostname))}


def accept(session: orm.Session, report: objects.Report) -> None:
    """Accept a report that follows the last one, and lock the host against other reports."""
    values = {
        'last_heartbeat': clock.now(),
        'sequence': report.sequence,
        'stored_sequence': report.sequence,
        'digest': report.digest,
        'is_ready': report.is_ready,
        'conflicts': report.conflicts,
        'rpc_version': report.given('rpc_version'),
        'cyborg_release': report.given('release'),
        'drivers': [
            {'name': driver.name, 'status': driver.status, 'error': driver.error}
            for driver in report.drivers
        ],
    }
    after = report.given('after')
    follows = Agent.sequence < report.sequence if after is None else Agent.sequence == after
    taken = session.execute(
        sa.update(Agent).where(Agent.hostname == report.hostname, follows).values(**values)
    )
    if models.matched(taken):
        return
    known = session.scalar(sa.select(Agent.sequence).where(Agent.hostname == report.hostname))
    if known is not None:
        raise errors.StaleReport(sequence=report.sequence, host=report.hostname, known=known)
    session.execute(
        sa.insert(Agent).values(uuid=uuidutils.generate_uuid(), hostname=report.hostname, **values)
    )


def lock(session: orm.Session, hostname: str) -> None:
    """Lock the host."""
    session.execute(sa.select(Agent.id).where(Agent.hostname == hostname).with_for_update())


def distrust(session: orm.Session, hostnames: Collection[str]) -> None:
    """Have these hosts report again, with their next heartbeat at the latest."""
    if hostnames:
        session.execute(
            sa.update(Agent).where(Agent.hostname.in_(hostnames)).values(digest=NO_DIGEST)
        )


def find(
    session: orm.Session,
    silent_since: datetime.datetime,
    filters: paging.Filters,
    page: paging.Page,
) -> list[objects.Agent]:
    """Returns one page of the agents that match."""
    columns = {
        'hostname': Agent.hostname,
        'is_ready': Agent.is_ready,
        'is_alive': Agent.last_heartbeat >= silent_since,
    }
    query = paging.page_of(session, sa.select(Agent), Agent, columns, filters, page)
    return [_shown(row, silent_since) for row in session.scalars(query)]


def get(session: orm.Session, silent_since: datetime.datetime, ref: str) -> objects.Agent:
    """Returns one agent by its uuid or by the name of its host."""
    rows = session.scalars(
        sa.select(Agent).where(sa.or_(Agent.uuid == ref, Agent.hostname == ref))
    ).all()
    if not rows:
        raise errors.AgentNotFound(ref=ref)
    # a host may have the uuid of another agent as its name
    return _shown(min(rows, key=lambda row: row.uuid != ref), silent_since)


def conflicts(session: orm.Session) -> dict[str, str]:
    """Returns the devices of all hosts that other services claim: provider name -> owner."""
    return {
        name: owner
        for claimed in session.scalars(sa.select(Agent.conflicts))
        for name, owner in claimed.items()
    }


def silent(session: orm.Session, since: datetime.datetime) -> list[str]:
    """Returns the hosts whose agent has sent no heartbeat since then."""
    return list(
        session.scalars(
            sa.select(Agent.hostname).where(Agent.last_heartbeat < since).order_by(Agent.hostname)
        )
    )


def rpc_versions(
    session: orm.Session, silent_since: datetime.datetime
) -> dict[tuple[str | None, str | None], int]:
    """Returns how many agents that are alive have reported each RPC version and release."""
    rows = session.execute(
        sa.select(Agent.rpc_version, Agent.cyborg_release, sa.func.count())
        .where(Agent.last_heartbeat >= silent_since)
        .group_by(Agent.rpc_version, Agent.cyborg_release)
    )
    return {(version, release): count for version, release, count in rows}


def stored_by_earlier_release(session: orm.Session, silent_since: datetime.datetime) -> list[str]:
    """Returns the hosts that are alive and whose last report a conductor of an earlier release has
    stored."""
    is_ours = sa.and_(Agent.stored_sequence.is_not(None), Agent.stored_sequence == Agent.sequence)
    return list(
        session.scalars(
            sa.select(Agent.hostname)
            .where(Agent.last_heartbeat >= silent_since, ~is_ours)
            .order_by(Agent.hostname)
        )
    )


def last_heartbeat(session: orm.Session, hostname: str) -> datetime.datetime | None:
    """Returns the time of the last heartbeat of a host; None if it has no agent."""
    return session.scalar(sa.select(Agent.last_heartbeat).where(Agent.hostname == hostname))


def unreserved(session: orm.Session, since: datetime.datetime) -> list[str]:
    """Returns the hosts of silent agents whose devices are not reserved yet."""
    return _hostnames(session, Agent.last_heartbeat < since, _is_unreserved())


def reserved(session: orm.Session, since: datetime.datetime) -> list[str]:
    """Returns the hosts of silent agents whose devices are reserved."""
    return _hostnames(session, Agent.last_heartbeat < since, Agent.withdrawal == RESERVED)


def returned(session: orm.Session, since: datetime.datetime) -> list[str]:
    """Returns the hosts whose devices are reserved although their agents are alive again, and
    nothing has changed on the hosts since the stored reports."""
    return _hostnames(session, _has_returned(since), Agent.withdrawal.is_not(None))


def _has_returned(since: datetime.datetime) -> sa.ColumnElement[bool]:
    return sa.and_(Agent.last_heartbeat >= since, Agent.digest != NO_DIGEST)


def _hostnames(session: orm.Session, *conditions: sa.ColumnElement[bool]) -> list[str]:
    query = sa.select(Agent.hostname).where(*conditions).order_by(Agent.hostname)
    return list(session.scalars(query))


def silence(
    session: orm.Session, since: datetime.datetime, long_since: datetime.datetime
) -> tuple[int, int, int]:
    """Returns how many agents have fallen silent, how many there are, and how many there are with
    those that are silent for good: since before ``long_since``, and with reserved devices."""
    is_silent = Agent.last_heartbeat < since
    counts = sa.or_(Agent.last_heartbeat >= long_since, _is_unreserved())

    def number(is_such: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
        return sa.func.coalesce(sa.func.sum(sa.case((is_such, 1), else_=0)), 0)

    [silent, rest, total] = session.execute(
        sa.select(number(sa.and_(is_silent, counts)), number(counts), sa.func.count()).select_from(
            Agent
        )
    ).one()
    return int(silent), int(rest), int(total)


def _is_unreserved() -> sa.ColumnElement[bool]:
    return sa.or_(Agent.withdrawal.is_(None), Agent.withdrawal != RESERVED)


def withdraw(session: orm.Session, hostname: str, since: datetime.datetime, state: str) -> bool:
    """Set the state of the reservation for a silent agent; returns False if it is alive again."""
    is_silent = Agent.last_heartbeat < since
    return _set_withdrawal(session, hostname, is_silent, state)


def give_back(session: orm.Session, hostname: str, since: datetime.datetime) -> bool:
    """Note that the reservation for an agent has ended; returns False if it is silent again, or
    must report first."""
    return _set_withdrawal(session, hostname, _has_returned(since), None)


def _set_withdrawal(
    session: orm.Session, hostname: str, condition: sa.ColumnElement[bool], state: str | None
) -> bool:
    update = sa.update(Agent).where(Agent.hostname == hostname, condition)
    return bool(models.matched(session.execute(update.values(withdrawal=state))))


def states(session: orm.Session) -> list[sa.Row[tuple[str, datetime.datetime, bool, str | None]]]:
    """Returns hostname, last_heartbeat, is_ready and disabled_reason of all agents."""
    query = sa.select(
        Agent.hostname, Agent.last_heartbeat, Agent.is_ready, Agent.disabled_reason
    ).order_by(Agent.hostname)
    return list(session.execute(query))


def is_disabled(session: orm.Session, hostname: str) -> bool:
    """Returns whether an operator has disabled the agent of a host."""
    reason = session.scalar(sa.select(Agent.disabled_reason).where(Agent.hostname == hostname))
    return reason is not None


def set_disabled(session: orm.Session, hostname: str, reason: str | None) -> None:
    """Disable the agent of a host for a reason, or enable it."""
    update = sa.update(Agent).where(Agent.hostname == hostname)
    session.execute(update.values(disabled_reason=reason))


def delete(session: orm.Session, hostname: str) -> None:
    """Delete the agent of a host."""
    session.execute(sa.delete(Agent).where(Agent.hostname == hostname))


def _shown(row: Agent, silent_since: datetime.datetime) -> objects.Agent:
    return objects.Agent.of(
        row,
        is_alive=row.last_heartbeat >= silent_since,
        drivers=[objects.Driver(**driver) for driver in row.drivers],
    )
