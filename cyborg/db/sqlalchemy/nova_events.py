# SPDX-License-Identifier: Apache-2.0
"""The outbox of events for Nova in SQL: written with the state, sent after the commit."""

import datetime
import hashlib
import os
import secrets
import socket
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import clock, models

NovaEvent = models.NovaEvent

#: seconds for which an event belongs to the conductor that is sending it: twice as long as a call
#: to Nova may take
CLAIM = 120
#: parts of a claim: this host, and this run of the program, since a process may have the id of a
#: dead one
_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_BORN = secrets.token_hex(2)

_TABLE = models.table(NovaEvent)
_ADD = sa.insert(_TABLE)
_REMOVE = sa.delete(_TABLE).where(
    _TABLE.c.claim.in_(models.any_of('claims')), _TABLE.c.arq_uuid.in_(models.any_of('arqs'))
)
_CLAIMED = sa.select(_TABLE.c.claim, _TABLE.c.arq_uuid).where(
    _TABLE.c.claim.in_(models.any_of('claims'))
)
_FORGET = sa.delete(_TABLE).where(_TABLE.c.arq_uuid.in_(models.any_of('arqs')))


def mark() -> str:
    """Returns a unique claim that names its maker: host, process, program, number."""
    return f'{_HOST}-{os.getpid():x}-{_BORN}-{secrets.token_hex(7)}'


def add(
    session: orm.Session, told: Iterable[tuple[models.ExtArq, str]], request_id: str | None = None
) -> list[NovaEvent]:
    """Put events into the outbox, each with a request and its status.

    They are claimed by the caller, which sends them after the commit. Other conductors may send
    them when the claim ends.
    """
    mine, until, now = mark(), _lease(), clock.now()
    rows = [
        {
            'instance_uuid': arq.instance_uuid,
            'arq_uuid': arq.uuid,
            'status': status,
            'request_id': request_id,
            'claim': mine,
            'due_at': until,
            'attempts': 1,
            'created_at': now,
        }
        for arq, status in told
    ]
    session.execute(_ADD, rows)
    return [NovaEvent(**row) for row in rows]


def _lease() -> datetime.datetime:
    """Returns when a claim made now ends."""
    return clock.now() + datetime.timedelta(seconds=CLAIM)


def claim(session: orm.Session, most: int, mark: str) -> list[NovaEvent]:
    """Claim at most so many due events, and the other due events of their servers."""
    is_due = sa.and_(NovaEvent.due_at <= clock.now(), NovaEvent.given_up_at.is_(None))
    first = (
        sa.select(NovaEvent.instance_uuid)
        .where(is_due)
        .order_by(NovaEvent.id)
        .limit(most)
        .subquery()
    )
    servers = sa.select(first.c.instance_uuid).distinct().subquery()
    ids = session.scalars(
        sa.select(NovaEvent.id)
        .join(servers, servers.c.instance_uuid == NovaEvent.instance_uuid)
        .where(is_due)
        .order_by(NovaEvent.id)
    ).all()
    if ids:
        session.execute(
            sa.update(NovaEvent)
            .where(NovaEvent.id.in_(ids), is_due)
            .values(claim=mark, due_at=_lease()),
            execution_options={'synchronize_session': False},
        )
    return list(
        session.scalars(sa.select(NovaEvent).where(NovaEvent.claim == mark).order_by(NovaEvent.id))
    )


def still_true(session: orm.Session, events: Sequence[NovaEvent]) -> list[NovaEvent]:
    """Returns the claimed events that were not dropped or claimed again."""
    claims = list({event.claim for event in events})
    there = {(claim, arq) for claim, arq in session.execute(_CLAIMED, {'claims': claims})}
    return [event for event in events if (event.claim, event.arq_uuid) in there]


def take_over(session: orm.Session) -> None:
    """Make events due that dead processes of this host had claimed."""
    claims = session.scalars(
        sa.select(NovaEvent.claim).distinct().where(NovaEvent.claim.startswith(f'{_HOST}-'))
    ).all()
    orphaned = [claim for claim in claims if claim and not _has_maker(claim)]
    if orphaned:
        session.execute(
            sa.update(NovaEvent).where(NovaEvent.claim.in_(orphaned)).values(due_at=clock.now()),
            execution_options={'synchronize_session': False},
        )


def _has_maker(claim: str) -> bool:
    """Returns whether the process that made a claim on this host is alive."""
    match claim.split('-'):
        case [_, process, born, _]:
            pass
        case _:
            return True  # an earlier release made it, which did not name the process
    if int(process, 16) == os.getpid():
        return born == _BORN
    try:
        os.kill(int(process, 16), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is a process of another user
    return True


def remove(session: orm.Session, events: Iterable[NovaEvent]) -> None:
    """Delete events that Nova has accepted, or will never accept."""
    session.execute(_REMOVE, _named(events))


def postpone(
    session: orm.Session,
    events: Sequence[NovaEvent],
    due_at: datetime.datetime,
    *,
    is_refused: bool,
) -> None:
    """Release the claim on events; they become due then."""
    refusal = (
        {
            'attempts': NovaEvent.attempts + 1,
            'refused_since': sa.func.coalesce(
                NovaEvent.refused_since, clock.now(), type_=clock.Moment
            ),
        }
        if is_refused
        else {}
    )
    _change(session, events, due_at=due_at, **refusal)


def give_up(session: orm.Session, events: Sequence[NovaEvent]) -> set[str]:
    """Give up the events that are still claimed by the caller; returns the uuids of their requests.
    An operator can resume them."""
    ours = set(session.scalars(sa.select(NovaEvent.arq_uuid).where(_are(events)).with_for_update()))
    _change(session, events, given_up_at=clock.now())
    return ours


def given_up(session: orm.Session) -> int:
    """Returns how many events are given up."""
    return (
        session.scalar(
            sa.select(sa.func.count())
            .select_from(NovaEvent)
            .where(NovaEvent.given_up_at.is_not(None))
        )
        or 0
    )


def resume(session: orm.Session) -> None:
    """Make events due again that were given up."""
    session.execute(
        sa.update(NovaEvent)
        .where(NovaEvent.given_up_at.is_not(None))
        .values(due_at=clock.now(), attempts=0, refused_since=None, given_up_at=None),
        execution_options={'synchronize_session': False},
    )


def _change(session: orm.Session, events: Sequence[NovaEvent], **values: object) -> None:
    """Change events and release their claim."""
    session.execute(
        sa.update(NovaEvent).where(_are(events)).values(claim=None, **values),
        execution_options={'synchronize_session': False},
    )


def _are(events: Sequence[NovaEvent]) -> sa.ColumnElement[bool]:
    named = _named(events)
    return sa.and_(NovaEvent.claim.in_(named['claims']), NovaEvent.arq_uuid.in_(named['arqs']))


def _named(events: Iterable[NovaEvent]) -> dict[str, list[str]]:
    """Returns the condition for these rows: a request has at most one event in a claim."""
    return {
        'claims': list({event.claim for event in events if event.claim}),
        'arqs': [event.arq_uuid for event in events],
    }


def forget(session: orm.Session, arq_uuids: Sequence[str]) -> None:
    """Delete the events of these requests that are no longer true."""
    session.execute(_FORGET, {'arqs': arq_uuids})
