# SPDX-License-Identifier: Apache-2.0
"""The unit of work: one transaction, its history, and the messages to send after its commit."""

import collections
import contextlib
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from oslo_log import log

from cyborg import backoff, errors, metrics, objects
from cyborg.conductor.engine import changes
from cyborg.conductor.engine.changes import Change
from cyborg.db.sqlalchemy import agents, engine, history, models, nova_events, receipts
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event

LOG = log.getLogger(__name__)

#: checks for the proof of a COMMIT that the server may still be performing
CHECKS = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.4  #: seconds between two of these checks

#: dispatches a unit of work after its commit
Dispatch = Callable[['UnitOfWork'], None]


class UnitOfWork:
    """Collects changes during a transaction, writes them in bulk at its end, and is dispatched
    after its commit."""

    def __init__(
        self, session: engine.Session, cause: history.Cause, *, is_repeatable: bool = False
    ) -> None:
        self.session = session
        self.actor, self.request_id = cause.actor, cause.request_id
        self._cause = cause
        self._is_repeatable = is_repeatable
        self._steps: list[history.Change] = []
        self._announced: list[tuple[models.ExtArq, str]] = []
        self._outdated: list[str] = []
        self._key: receipts.Key | None = None
        self._made: Sequence[str] | None = None
        #: tasks to send to hosts at once, by host
        self.tasks: dict[str, list[objects.Task]] = {}
        #: hosts that must report now because their providers change
        self.hosts_to_wake: set[str] = set()
        #: hosts with tasks that are open for so long that a message may be lost
        self.hosts_to_remind: set[str] = set()
        #: events for Nova; complete when the block ends
        self.events: list[models.NovaEvent] = []
        #: binds that end: driver and result -> how many
        self._binds: collections.Counter[tuple[str, str]] = collections.Counter()
        #: changes that are not steps of requests
        self._noted: list[Change] = []
        #: set when the block ends
        self.proof: engine.Proof | None = None

    def step(
        self,
        arq: models.ExtArq,
        event: Event,
        from_state: str | None,
        to_state: str,
        reason: str | None = None,
        binding: objects.Binding | None = None,
    ) -> None:
        """Add a step to the history of a request, with its present host and provider, or with the
        binding that was refused.

        Unsent events for Nova about the state before are deleted, because they are obsolete.
        """
        if from_state in arq_states.ANNOUNCED and from_state != to_state:
            self._outdated.append(arq.uuid)
        self._steps.append(history.Change(arq, event, from_state, to_state, reason, binding))

    def note_made(self, key: receipts.Key, uuids: Sequence[str]) -> None:
        """Note the objects that a request with an idempotency key creates."""
        self._key, self._made = key, uuids

    def note(self, change: Change) -> None:
        """Note a change of state that is not a step of a request."""
        self._noted.append(change)

    def end_binds(self, drivers: Iterable[str], result: str) -> None:
        """Note binds that end, for the metrics, by the drivers of their handles."""
        self._binds.update((driver, result) for driver in drivers)

    def count(self) -> None:
        """Count, after the commit, what was noted for the metrics."""
        for (driver, result), number in self._binds.items():
            metrics.BINDS.labels(driver, result).inc(number)

    @property
    def changes(self) -> list[Change]:
        """Returns all changes of state, without the steps that do not change the state."""
        return [
            *(
                changes.of_step(step)
                for step in self._steps
                if step.row['from_state'] != step.row['to_state']
            ),
            *self._noted,
        ]

    @property
    def logged(self) -> list[Change]:
        """Returns what is written to the log: all changes, and refused binds."""
        refused = [step for step in self._steps if step.row['event'] == Event.REFUSED]
        return [*self.changes, *map(changes.of_step, refused)]

    def announce(self, arqs: Iterable[models.ExtArq], status: str) -> None:
        """Send Nova an event with the outcome of a bind."""
        self._announced.extend((arq, status) for arq in arqs)

    def assign(self, hostname: str, task: objects.Task) -> None:
        """Send a task to its host after the commit."""
        self.tasks.setdefault(hostname, []).append(task)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        if error is not None:
            return
        proof = history.record(self.session, self._cause, self._steps)
        if self._outdated:
            nova_events.forget(self.session, self._outdated)
        if self._announced:
            self.events = nova_events.add(self.session, self._announced, self._cause.request_id)
        agents.distrust(self.session, self.hosts_to_wake)
        if self._key is not None or proof is None and not self._is_repeatable:
            proof = receipts.add(self.session, self._key, self._made)
        self.proof = proof


@contextlib.contextmanager
def transact(
    db: engine.Database,
    cause: history.Cause,
    dispatch: Dispatch | None = None,
    *,
    is_repeatable: bool = False,
) -> Iterator[UnitOfWork]:
    """Open a transaction with its unit of work. It is committed once, or an error is raised.

    If the connection breaks during the COMMIT, the client does not know whether the transaction
    was committed. Then the proof is searched in the database; if it exists, the unit of work is
    dispatched as usual. With ``is_repeatable`` the transaction has the same effect if it happens
    twice, and leaves no proof.
    """
    unit = None
    try:
        with (
            db.writer() as session,
            UnitOfWork(session, cause, is_repeatable=is_repeatable) as unit,
        ):
            yield unit
    except engine.ConnectionLost:
        if unit is None or unit.proof is None or not _is_committed(db, unit.proof):
            raise
        LOG.warning('The connection to the database broke during a COMMIT, which succeeded.')
    if unit is not None:
        unit.count()
        changes.write(cause, unit.logged)
        if dispatch is not None:
            dispatch(unit)


def _is_committed(db: engine.Database, proof: engine.Proof) -> bool:
    """Returns whether the database has the row that proves the commit. Waits for a commit that may
    still be in progress."""

    query = proof()

    @engine.retried
    def is_there() -> bool:
        with db.reader() as session:
            return session.scalar(query) is not None

    try:
        for number in range(CHECKS):
            time.sleep(backoff.pause(number, LONGEST_PAUSE, FIRST_PAUSE))
            if is_there():
                return True
        return False
    except engine.ConnectionLost as error:
        raise errors.Unavailable(
            'The database became unavailable during a COMMIT: the request may have been performed '
            'or not. Check that before you repeat it.'
        ) from error
