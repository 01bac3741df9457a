# SPDX-License-Identifier: Apache-2.0
"""Agents in SQL: who lives, and whether what we know of a host is what its agent knows."""

import datetime
from collections.abc import Collection

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import models, paging

Agent = models.Agent
NO_DIGEST = ''  #: equals none, so that the next heartbeat asks for a report


def beat(session: orm.Session, hostname: str, digest: str) -> bool:
    """Note that the agent lives; False if what it last reported is not what we have."""
    lives = sa.update(Agent).where(Agent.hostname == hostname).values(
        last_heartbeat=models.now())
    if session.execute(lives.where(Agent.digest == digest)).rowcount:
        return True
    session.execute(lives)
    return False


def accept(session: orm.Session, report: objects.Report) -> None:
    """Take a report that follows the last one; other reports of the host wait for us."""
    values = {
        'last_heartbeat': models.now(), 'sequence': report.sequence, 'digest': report.digest,
        'is_ready': report.is_ready, 'conflicts': report.conflicts,
        'drivers': [{'name': driver.name, 'status': driver.status, 'error': driver.error}
                    for driver in report.drivers]}
    after = report.given('after')
    follows = Agent.sequence < report.sequence if after is None else Agent.sequence == after
    taken = session.execute(
        sa.update(Agent).where(Agent.hostname == report.hostname, follows).values(**values))
    if taken.rowcount:
        return
    known = session.scalar(sa.select(Agent.sequence).where(Agent.hostname == report.hostname))
    if known is not None:
        raise errors.StaleReport(sequence=report.sequence, host=report.hostname, known=known)
    session.execute(sa.insert(Agent).values(
        uuid=uuidutils.generate_uuid(), hostname=report.hostname, **values))


def lock(session: orm.Session, hostname: str) -> None:
    """Have others that lock this host wait for us."""
    session.execute(sa.select(Agent.id).where(Agent.hostname == hostname).with_for_update())


def distrust(session: orm.Session, hostnames: Collection[str]) -> None:
    """Have these hosts report anew, at their next heartbeat if no message reaches them."""
    if hostnames:
        session.execute(
            sa.update(Agent).where(Agent.hostname.in_(hostnames)).values(digest=NO_DIGEST))


def find(session: orm.Session, silent_since: datetime.datetime, filters: paging.Filters,
         page: paging.Page) -> list[objects.Agent]:
    """Those that match, a page of them."""
    columns = {'hostname': Agent.hostname, 'is_ready': Agent.is_ready,
               'is_alive': Agent.last_heartbeat >= silent_since}
    query = paging.page_of(session, sa.select(Agent), Agent, columns, filters, page)
    return [_shown(row, silent_since) for row in session.scalars(query)]


def get(session: orm.Session, silent_since: datetime.datetime, ref: str) -> objects.Agent:
    """One, by uuid or by the name of its host."""
    rows = session.scalars(sa.select(Agent).where(
        sa.or_(Agent.uuid == ref, Agent.hostname == ref))).all()
    if not rows:
        raise errors.AgentNotFound(ref=ref)
    # a host may be called like another agent's uuid
    return _shown(min(rows, key=lambda row: row.uuid != ref), silent_since)


def conflicts(session: orm.Session) -> dict[str, str]:
    """What somebody else claims on any host: provider name -> owner."""
    return {name: owner for claimed in session.scalars(sa.select(Agent.conflicts))
            for name, owner in claimed.items()}


def last_heartbeat(session: orm.Session, hostname: str) -> datetime.datetime | None:
    """When the agent of a host was last heard of; None if there is no such agent."""
    return session.scalar(sa.select(Agent.last_heartbeat).where(Agent.hostname == hostname))


def delete(session: orm.Session, hostname: str) -> None:
    """Delete the agent of a host."""
    session.execute(sa.delete(Agent).where(Agent.hostname == hostname))


def _shown(row: Agent, silent_since: datetime.datetime) -> objects.Agent:
    return objects.Agent.of(row, is_alive=row.last_heartbeat >= silent_since,
                            drivers=[objects.Driver(**driver) for driver in row.drivers])
