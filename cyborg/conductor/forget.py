# SPDX-License-Identifier: Apache-2.0
"""An operator declares a host gone for good, without any conductor."""

import datetime

from cyborg.conductor.engine import hosts
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import engine
from cyborg.db.sqlalchemy.history import Cause


def require_gone(db: engine.Database, hostname: str, silent_since: datetime.datetime) -> None:
    """Refuse to forget a host whose agent lives: it would only come back."""
    with db.reader() as session:
        hosts.require_gone(session, hostname, silent_since)


@engine.retried
def forget(db: engine.Database, hostname: str) -> dict[str, int]:
    """Unbind what is bound there, and drop all that is known of it; returns how much that was."""
    with transact(db, Cause('operator')) as unit:
        return hosts.forget(unit, hostname)
