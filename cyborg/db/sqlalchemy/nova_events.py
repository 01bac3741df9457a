# SPDX-License-Identifier: Apache-2.0
"""The outbox of events to Nova: written with the state they tell of, sent afterwards."""

import datetime
import hashlib
import os
import secrets
import socket
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import models

Event = models.NovaEvent

#: seconds for which an event belongs to the conductor that is sending it: twice as long as a call
#: of Nova may take
CLAIM = 120
#: of this host, and of this program since it started: a process may have the id of a dead one
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_BORN = secrets.token_hex(2)

_TABLE = Event.__table__
_ADD = sa.insert(_TABLE)
_REMOVE = sa.delete(_TABLE).where(_TABLE.c.claim.in_(models.any_of('claims')),
                                  _TABLE.c.arq_uuid.in_(models.any_of('arqs')))
_CLAIMED = sa.select(_TABLE.c.arq_uuid).where(_TABLE.c.claim == sa.bindparam('mine'))
_FORGET = sa.delete(_TABLE).where(_TABLE.c.arq_uuid.in_(models.any_of('arqs')))


def mark() -> str:
    """A claim like no other, which tells who made it: host, process, program, number."""
    return f'{_HOST}-{os.getpid():x}-{_BORN}-{secrets.token_hex(7)}'


def add(session: orm.Session, told: Iterable[tuple[models.ExtArq, str]],
        request_id: str | None = None) -> list[Event]:
    """Put events, a request and its status each, into the outbox.

    They belong to the caller, who sends them after the commit; nobody else does for a while.
    """
    mine, until, now = mark(), _lease(), models.now()
    rows = [{'instance_uuid': arq.instance_uuid, 'arq_uuid': arq.uuid, 'status': status,
             'request_id': request_id, 'claim': mine, 'due_at': until, 'attempts': 1,
             'created_at': now} for arq, status in told]
    session.execute(_ADD, rows)
    return [Event(**row) for row in rows]


def _lease() -> datetime.datetime:
    """Until when events belong to whoever claims them now."""
    return models.now() + datetime.timedelta(seconds=CLAIM)


def claim(session: orm.Session, most: int, mark: str) -> list[Event]:
    """Take so many events that are due, and what else is due of their servers; nobody else gets
    them for a while."""
    is_due = sa.and_(Event.due_at <= models.now(), Event.given_up_at.is_(None))
    first = sa.select(Event.instance_uuid).where(is_due).order_by(Event.id).limit(most).subquery()
    servers = sa.select(first.c.instance_uuid).distinct().subquery()
    ids = session.scalars(
        sa.select(Event.id).join(servers, servers.c.instance_uuid == Event.instance_uuid)
        .where(is_due).order_by(Event.id)).all()
    if ids:
        session.execute(
            sa.update(Event).where(Event.id.in_(ids), is_due)
            .values(claim=mark, due_at=_lease()),
            execution_options={'synchronize_session': False})
    return list(session.scalars(
        sa.select(Event).where(Event.claim == mark).order_by(Event.id)))


def still_true(session: orm.Session, events: Sequence[Event]) -> list[Event]:
    """Those of these of one claim that nobody has dropped or claimed meanwhile."""
    there = set(session.scalars(_CLAIMED, {'mine': events[0].claim}))
    return [event for event in events if event.arq_uuid in there]


def take_over(session: orm.Session) -> None:
    """What processes of this host were sending when they died is due now."""
    claims = session.scalars(sa.select(Event.claim).distinct().where(
        Event.claim.startswith(f'{_HOST}-'))).all()
    orphaned = [claim for claim in claims if claim and not _has_maker(claim)]
    if orphaned:
        session.execute(
            sa.update(Event).where(Event.claim.in_(orphaned)).values(due_at=models.now()),
            execution_options={'synchronize_session': False})


def _has_maker(claim: str) -> bool:
    """Does the process that made a claim on this host still run?"""
    match claim.split('-'):
        case [_, process, born, _]:
            pass
        case _:
            return True  # of an earlier release, which did not tell
    if int(process, 16) == os.getpid():
        return born == _BORN
    try:
        os.kill(int(process, 16), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def remove(session: orm.Session, events: Iterable[Event]) -> None:
    """Forget these: Nova has heard them, or will never want to."""
    session.execute(_REMOVE, _named(events))


def postpone(session: orm.Session, events: Sequence[Event], due_at: datetime.datetime, *,
             is_refused: bool) -> None:
    """Have these sent by whoever claims them, not before then."""
    refusal = {'attempts': Event.attempts + 1, 'refused_since': sa.func.coalesce(
        Event.refused_since, models.now(), type_=models.Moment)} if is_refused else {}
    _change(session, events, due_at=due_at, **refusal)


def give_up(session: orm.Session, events: Sequence[Event]) -> set[str]:
    """Send these no more, unless an operator wants it; answers for which requests
    they were: some may have become untrue, or somebody else's, meanwhile."""
    ours = set(session.scalars(
        sa.select(Event.arq_uuid).where(_are(events)).with_for_update()))
    _change(session, events, given_up_at=models.now())
    return ours


def given_up(session: orm.Session) -> int:
    """How many are not sent any more?"""
    return session.scalar(sa.select(sa.func.count()).select_from(Event).where(
        Event.given_up_at.is_not(None))) or 0


def resume(session: orm.Session) -> None:
    """Send again what was given up."""
    session.execute(
        sa.update(Event).where(Event.given_up_at.is_not(None))
        .values(due_at=models.now(), attempts=0, refused_since=None, given_up_at=None),
        execution_options={'synchronize_session': False})


def _change(session: orm.Session, events: Sequence[Event], **values: object) -> None:
    """Change these, which are nobody's then."""
    session.execute(sa.update(Event).where(_are(events)).values(claim=None, **values),
                    execution_options={'synchronize_session': False})


def _are(events: Sequence[Event]) -> sa.ColumnElement[bool]:
    named = _named(events)
    return sa.and_(Event.claim.in_(named['claims']), Event.arq_uuid.in_(named['arqs']))


def _named(events: Iterable[Event]) -> dict[str, list[str]]:
    """Which rows these are: a request has at most one event in a claim."""
    return {'claims': list({event.claim for event in events if event.claim}),
            'arqs': [event.arq_uuid for event in events]}


def forget(session: orm.Session, arq_uuids: Sequence[str]) -> None:
    """Drop what is no longer true of these requests."""
    session.execute(_FORGET, {'arqs': arq_uuids})
