# SPDX-License-Identifier: Apache-2.0
"""What one transaction does: steps and events of requests, the work it leaves, its news."""

import contextlib
import time
import types
from collections.abc import Iterable, Iterator
from typing import Self

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_log import log
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import agents, engine, history, models, nova_events, receipts
from cyborg.db.sqlalchemy.notices import Notice
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event

LOG = log.getLogger(__name__)

#: seconds between two looks for a transaction whose COMMIT the server may still be busy with
PAUSES = (0.1, 0.3, 0.6)


class Ledger:
    """Kept while a transaction runs, written in bulk at its end, acted upon after its commit."""

    def __init__(self, session: orm.Session, cause: history.Cause) -> None:
        self.session = session
        self._cause = cause
        self._steps: list[history.Change] = []
        self._told: list[tuple[models.ExtArq, str]] = []
        self._outdated: list[str] = []
        #: by host
        self.work: dict[str, list[objects.Work]] = {}
        #: whose providers must be redone
        self.stale_hosts: set[str] = set()
        #: what Nova should hear; known when the block ends
        self.events: list[models.NovaEvent] = []
        #: what operators should hear of devices
        self.notices: list[Notice] = []
        #: a query that finds something as soon as all this is committed; known when the block ends
        self.proof: sa.Select | None = None

    def step(self, arq: models.ExtArq, event: Event, from_state: str | None, to_state: str,
             reason: str | None = None) -> None:
        """Note a change of state, with where the request is now.

        What Nova has still to hear of the state before is no longer true, and is dropped.
        """
        if from_state in arq_states.ANNOUNCED and from_state != to_state:
            self._outdated.append(arq.uuid)
        self._steps.append(history.Change(arq, event, from_state, to_state, reason))

    def announce(self, arqs: Iterable[models.ExtArq], status: str) -> None:
        """Have Nova hear how binding went."""
        self._told.extend((arq, status) for arq in arqs)

    def assign(self, hostname: str, work: objects.Work) -> None:
        """Have a host do something."""
        self.work.setdefault(hostname, []).append(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        if error is not None:
            return
        proof = history.record(self.session, self._cause, self._steps)
        if self._outdated:
            nova_events.forget(self.session, self._outdated)
        if self._told:
            self.events = nova_events.add(self.session, self._told, self._cause.request_id)
        agents.distrust(self.session, self.stale_hosts)
        self.proof = receipts.add(self.session) if proof is None else proof


@contextlib.contextmanager
def transact(db: engine.Database, cause: history.Cause) -> Iterator[Ledger]:
    """A transaction with its ledger, which happens once or, with an error, not at all.

    A connection that breaks before COMMIT is answered leaves open whether it was done. Then the
    database is asked: if it was, all goes on as if the answer had come.
    """
    ledger = None
    try:
        with db.writer() as session, Ledger(session, cause) as ledger:
            yield ledger
    except db_exc.DBConnectionError:
        if ledger is None or ledger.proof is None or not _is_committed(db, ledger.proof):
            raise
        LOG.warning('The connection to the database broke during a COMMIT that was done.')


def _is_committed(db: engine.Database, proof: sa.Select) -> bool:
    """Is there what proves it? Waits for a server that is still busy with it."""
    @engine.retried
    def is_there() -> bool:
        with db.reader() as session:
            return session.scalar(proof) is not None
    try:
        for pause in PAUSES:
            if is_there():
                return True
            time.sleep(pause)
        return is_there()
    except db_exc.DBConnectionError as error:
        raise errors.Unavailable(
            'The database went away during a COMMIT and has not come back: what was asked may be '
            'done or not. Look before you ask again.') from error
