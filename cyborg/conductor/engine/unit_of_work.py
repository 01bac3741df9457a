# SPDX-License-Identifier: Apache-2.0
"""One transaction with all that follows from it: history, events, tasks, hosts to wake."""

import contextlib
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor.engine.notices import Notice
from cyborg.db.sqlalchemy import agents, engine, history, models, nova_events, receipts
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event

LOG = log.getLogger(__name__)

#: seconds between two looks for a transaction whose COMMIT the server may still be busy with
PAUSES = (0.1, 0.3, 0.6)

#: acts upon a unit of work after its commit
Dispatch = Callable[['UnitOfWork'], None]


class UnitOfWork:
    """Collects while a transaction runs, writes in bulk at its end, is dispatched after its
    commit."""

    def __init__(self, session: engine.Session, cause: history.Cause, *,
                 is_repeatable: bool = False) -> None:
        self.session = session
        self.request_id = cause.request_id
        self._cause = cause
        self._is_repeatable = is_repeatable
        self._steps: list[history.Change] = []
        self._announced: list[tuple[models.ExtArq, str]] = []
        self._outdated: list[str] = []
        #: what hosts are told to do at once, by host
        self.tasks: dict[str, list[objects.Task]] = {}
        #: hosts that should look and report now, because their providers change
        self.hosts_to_wake: set[str] = set()
        #: hosts that have not done something for so long that a message may have been lost
        self.hosts_to_remind: set[str] = set()
        #: what Nova should hear; known when the block ends
        self.events: list[models.NovaEvent] = []
        #: what operators should hear of devices
        self.notices: list[Notice] = []
        #: finds something as soon as all this is committed; known when the block ends
        self.proof: engine.Query | None = None

    def step(self, arq: models.ExtArq, event: Event, from_state: str | None, to_state: str,
             reason: str | None = None) -> None:
        """Note a step of a request in its history, with where the request is now.

        Events about the state before that Nova has not heard yet are dropped: they are no longer
        true.
        """
        if from_state in arq_states.ANNOUNCED and from_state != to_state:
            self._outdated.append(arq.uuid)
        self._steps.append(history.Change(arq, event, from_state, to_state, reason))

    def announce(self, arqs: Iterable[models.ExtArq], status: str) -> None:
        """Have Nova hear how binding went."""
        self._announced.extend((arq, status) for arq in arqs)

    def assign(self, hostname: str, task: objects.Task) -> None:
        """Have a host perform a task as soon as the transaction is committed."""
        self.tasks.setdefault(hostname, []).append(task)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        if error is not None:
            return
        proof = history.record(self.session, self._cause, self._steps)
        if self._outdated:
            nova_events.forget(self.session, self._outdated)
        if self._announced:
            self.events = nova_events.add(self.session, self._announced, self._cause.request_id)
        agents.distrust(self.session, self.hosts_to_wake)
        if proof is None and not self._is_repeatable:
            proof = receipts.add(self.session)
        self.proof = proof


@contextlib.contextmanager
def transact(db: engine.Database, cause: history.Cause, dispatch: Dispatch | None = None, *,
             is_repeatable: bool = False) -> Iterator[UnitOfWork]:
    """A transaction with its unit of work, which happens once or, with an error, not at all.
    ``is_repeatable``: it has the same effect if it happens twice, and leaves no proof.

    A connection that breaks before COMMIT is answered leaves open whether it was done. Then the
    database is asked: if it was, all goes on as if the answer had come.
    """
    unit = None
    try:
        with db.writer() as session, UnitOfWork(
                session, cause, is_repeatable=is_repeatable) as unit:
            yield unit
    except engine.ConnectionLost:
        if unit is None or unit.proof is None or not _is_committed(db, unit.proof):
            raise
        LOG.warning('The connection to the database broke during a COMMIT that was done.')
    if dispatch is not None and unit is not None:
        dispatch(unit)


def _is_committed(db: engine.Database, proof: engine.Query) -> bool:
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
    except engine.ConnectionLost as error:
        raise errors.Unavailable(
            'The database went away during a COMMIT and has not come back: what was asked may be '
            'done or not. Look before you ask again.') from error
