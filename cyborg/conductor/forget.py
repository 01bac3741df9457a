# SPDX-License-Identifier: Apache-2.0
"""An operator declares a host gone for good: what was known of it goes, nothing dangles."""

import datetime
from collections.abc import Sequence

from cyborg import errors
from cyborg.db.sqlalchemy import (
    agents,
    devices,
    engine,
    inventory,
    locked_arqs,
    models,
    releasing,
)
from cyborg.db.sqlalchemy.history import Cause
from cyborg.db.sqlalchemy.ledger import Ledger, transact


def require_gone(db: engine.Database, hostname: str, silent_since: datetime.datetime) -> None:
    """Refuse to forget a host whose agent lives: it would only come back."""
    with db.reader() as session:
        beat = agents.last_heartbeat(session, hostname)
        is_known = beat is not None or devices.are_on(session, hostname)
    if not is_known:
        raise errors.NotFound(f'There is no host {hostname}.')
    if beat is not None and beat >= silent_since:
        raise errors.Conflict(
            f'The agent of {hostname} was heard of at {beat:%H:%M:%S} UTC: stop it first.')


@engine.retried
def forget(db: engine.Database, hostname: str) -> dict[str, int]:
    """A host is gone for good: unbind what is bound there, drop all that is known of it.

    Binds may go on meanwhile. One that took a handle before we had it for ourselves is unbound
    like the others; one that comes later finds nothing to take.
    """
    with transact(db, Cause('operator')) as ledger:
        session = ledger.session
        # first, so that a report of the host waits until we are done
        agents.delete(session, hostname)
        rows = locked_arqs.on_host(session, hostname)
        cards = inventory.load(session, hostname)
        rows += _late_holders(ledger, cards, rows)
        releasing.unbind_rows(ledger, rows, f'Host {hostname} is gone.')
        ledger.work.clear()  # nobody is there to do it
        devices.delete(session, cards)
        devices.forget_divided(session, hostname)
        ledger.stale_hosts.clear()
    return {'requests unbound': len(rows), 'devices forgotten': len(cards)}


def _late_holders(ledger: Ledger, cards: Sequence[models.Device],
                  rows: Sequence[models.ExtArq]) -> list[models.ExtArq]:
    """Have all handles of these devices for ourselves; answers who holds one and is not among
    the rows."""
    handles = [handle for card in cards for part in card.deployables
               for handle in part.attach_handles]
    inventory.lock(handles)
    holders = {handle.arq_id for handle in handles if handle.arq_id is not None}
    return locked_arqs.by_id(ledger.session, holders - {row.id for row in rows})
