# SPDX-License-Identifier: Apache-2.0
"""Forgets a host that is gone for good. cyborg-manage calls this, without a conductor."""

import datetime

from cyborg.conductor.engine import hosts
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import engine
from cyborg.db.sqlalchemy.history import Cause


def require_gone(
    db: engine.Database, hostname: str, silent_since: datetime.datetime | None
) -> None:
    """Raises NotFound if nothing is known of the host, and Conflict if its agent is alive, because
    its next report would add the host again. If ``silent_since`` is None, it may be alive."""
    with db.reader() as session:
        hosts.require_gone(session, hostname, silent_since)


@engine.retried
def forget(db: engine.Database, hostname: str) -> dict[str, int]:
    """Unbind all requests on a host and delete its rows; returns the number of each."""
    with transact(db, Cause('operator')) as unit:
        return hosts.forget(unit, hostname)
