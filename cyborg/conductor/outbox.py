# SPDX-License-Identifier: Apache-2.0
"""Tells Nova what became of its requests: state first, then the event, until Nova takes it."""

import collections
import datetime
import itertools
import threading
import time
from collections.abc import Iterable, Sequence

from oslo_log import log

from cyborg import errors
from cyborg.clients.nova import Nova
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import arqs, engine, models, nova_events
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects.arq_states import Event

LOG = log.getLogger(__name__)

CAUSE = Cause('conductor')
BATCH = 50  #: events that are claimed at once
MOST_FRESH = 1000  #: servers whose fresh events wait in memory
SETTLED_TOGETHER = 1.0  #: seconds for which events that Nova has heard may wait to be removed
#: how much of its lease an event must have left to be sent: a POST that hangs until its time-out
#: ends before another conductor takes the event
LEASE_NEEDED = 2 / 3
LONGEST_PAUSE = 300  #: seconds before an event that Nova refused is sent again
LONGEST_REST = 30  #: seconds for which a Nova that is down is left alone
#: Nova has it; has no host for the server yet and will read the state; or knows no such server
SETTLED = frozenset({200, 404, 422})

Waiting = collections.deque[list[models.NovaEvent]]


class Circuit:
    """Lets nobody wait for a Nova that is down: after a failure it is left alone for a while."""

    def __init__(self) -> None:
        self._failures = 0
        self._closed_at = 0.0

    @property
    def wait(self) -> float:
        """Seconds until Nova may be tried again."""
        return max(0.0, self._closed_at - time.monotonic())

    def note(self, is_up: bool) -> None:
        """Remember how a try ended."""
        self._failures = 0 if is_up else self._failures + 1
        pause = min(2 ** min(self._failures - 1, 16), LONGEST_REST) if self._failures else 0
        self._closed_at = time.monotonic() + pause


class Outbox:
    """One thread a process. Any number of them share the table without sending twice.

    What this process has just written and what is due in the table is sent by turns, so that a
    backlog delays no new event.
    """

    def __init__(self, db: engine.Database, nova: Nova, interval: float,
                 patience: float) -> None:
        self._db = db
        self._nova = nova
        self._interval = interval
        self._patience = datetime.timedelta(seconds=patience)  #: with a Nova that refuses
        self._circuit = Circuit()
        #: one server's events of one claim each, oldest first
        self._fresh: Waiting = collections.deque()
        self._due: Waiting = collections.deque()
        self._look_at = 0.0  #: when to look into the table
        self._heard: list[models.NovaEvent] = []  #: to be removed from the table
        self._settle_at = 0.0  #: when to remove them
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name='outbox', daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There may be something in the table."""
        self._look_at = 0.0
        self._wake.set()

    def send(self, events: Sequence[models.NovaEvent]) -> None:
        """Send what was just put into the table and is ours. What is too much, because Nova is
        slow or down, waits there until its lease ends."""
        if events and len(self._fresh) < MOST_FRESH:
            self._fresh.extend(_by_server(events))
            self._wake.set()

    def stop(self) -> None:
        """Finish what is being sent; the rest stays in the table."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        is_new = True
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                if is_new:
                    self.take_over()
                    is_new = False
                self.deliver()
                self._settle_in_time()
            except Exception:
                LOG.exception('Sending events to Nova failed; they stay in the outbox.')
                self._look_at = self._settle_at = time.monotonic() + self._interval
            if rest := self._circuit.wait:
                self._stopping.wait(rest)
                self._look_at = 0.0
            else:
                until = min(self._look_at, self._settle_at) if self._heard else self._look_at
                self._wake.wait(max(0.0, until - time.monotonic()))
        for waiting in (self._fresh, self._due):
            self._give_back(list(itertools.chain.from_iterable(waiting)))
        self.settle()

    @property
    def _is_resting(self) -> bool:
        return self._stopping.is_set() or self._circuit.wait > 0

    def take_over(self) -> None:
        """Have sent what those were sending who ran here before and were killed."""
        with self._db.writer() as session:
            nova_events.take_over(session)

    def deliver(self) -> None:
        """Send what is fresh and what is due by turns, until nothing is left of either."""
        while not self._is_resting:
            self._give_back([*_late(self._fresh), *_late(self._due)])
            if not self._due and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + self._interval
                self._claim()
            if not self._fresh and not self._due:
                return
            for waiting in (self._fresh, self._due):
                if waiting and not self._is_resting:
                    self._send(waiting.popleft())

    def _claim(self) -> None:
        """Take some of what is due in the table."""
        mark = nova_events.mark()  # a second try finds what the first one claimed

        @engine.retried
        def claim() -> list[models.NovaEvent]:
            with self._db.writer() as session:
                return nova_events.claim(session, BATCH, mark)
        if events := claim():
            self._look_at = 0.0  # there may be more
            self._due.extend(_by_server(events))

    def _send(self, events: list[models.NovaEvent]) -> None:
        """Send those of one server that are still true; what Nova did not take waits."""
        self._settle_in_time()
        with self._db.reader() as session:
            events = nova_events.still_true(session, events)
        if not events:
            return
        began = time.monotonic()
        try:
            codes = self._nova.send_events(
                [(event.instance_uuid, event.arq_uuid, event.status) for event in events],
                events[0].request_id)
        except errors.Unavailable as error:
            self._circuit.note(is_up=False)
            LOG.warning('Events wait in the outbox, Nova is left alone for %.0f s: %s',
                        self._circuit.wait, error.faultstring)
            self._postpone(events, is_refused=False)
            return
        self._circuit.note(is_up=True)
        answers = list(zip(events, codes, strict=True))
        for event, code in answers:
            # one that is refused is sent again; of a server that Nova does not know, the audit
            # finds what is left
            level = log.DEBUG if code in (200, 422) else log.WARNING
            LOG.log(level, 'Event %s of request %s of server %s: Nova answered %s.',
                    event.status, event.arq_uuid, event.instance_uuid, code)
        if not self._heard:
            self._settle_at = began + SETTLED_TOGETHER
        self._heard += [event for event, code in answers if code in SETTLED]
        refused = [event for event, code in answers if code not in SETTLED]
        if unbearable := [event for event in refused if self._is_unbearable(event)]:
            self._give_up(unbearable)
        if patient := [event for event in refused if event not in unbearable]:
            self._postpone(patient, is_refused=True)

    def _is_unbearable(self, event: models.NovaEvent) -> bool:
        """Has Nova refused it for so long that it will not take it any more?"""
        since = event.refused_since
        return since is not None and models.now() - since >= self._patience

    @engine.retried
    def _postpone(self, events: list[models.NovaEvent], *, is_refused: bool) -> None:
        """Have these of one claim wait until Nova may take them."""
        pause = self._circuit.wait or min(2 ** min(events[0].attempts, 16), LONGEST_PAUSE)
        with self._db.writer() as session:
            nova_events.postpone(
                session, events, models.now() + datetime.timedelta(seconds=pause),
                is_refused=is_refused)

    @engine.retried
    def _give_back(self, events: list[models.NovaEvent]) -> None:
        """Have these sent by whoever claims them next."""
        if events:
            with self._db.writer() as session:
                nova_events.postpone(session, events, models.now(), is_refused=False)
            self._look_at = 0.0

    @engine.retried
    def _give_up(self, events: list[models.NovaEvent]) -> None:
        """Send these of one claim no more; operators are told, and can have it done."""
        since = {event.arq_uuid: event.refused_since for event in events}
        with transact(self._db, CAUSE) as unit:
            rows = arqs.named(unit.session, since)
            given_up = nova_events.give_up(unit.session, events)
            for row in rows:
                if row.uuid in given_up:
                    unit.step(row, Event.UNHEARD, row.state, row.state,
                                f'Nova has refused to hear of it since '
                                f'{since[row.uuid]:%Y-%m-%d %H:%M} UTC.')
        for event in (event for event in events if event.arq_uuid in given_up):
            LOG.error('Event %s of request %s of server %s is given up: Nova has refused it since '
                      '%s. When Nova takes such events again, cyborg-manage audit --fix sends it.',
                      event.status, event.arq_uuid, event.instance_uuid, event.refused_since)

    def _settle_in_time(self) -> None:
        if time.monotonic() >= self._settle_at:
            self.settle()

    @engine.retried
    def settle(self) -> None:
        """Remove what Nova has heard: many at once, for nobody waits for that."""
        if self._heard:
            with self._db.writer() as session:
                nova_events.remove(session, self._heard)
            self._heard.clear()


def _by_server(events: Iterable[models.NovaEvent]) -> Iterable[list[models.NovaEvent]]:
    """What goes into one request: a server's events of one claim, in their order."""
    groups: dict[tuple[str, str | None], list[models.NovaEvent]] = {}
    for event in events:
        groups.setdefault((event.instance_uuid, event.claim), []).append(event)
    return groups.values()


def _late(waiting: Waiting) -> list[models.NovaEvent]:
    """Take out those whose lease may end before Nova has answered."""
    until = models.now() + datetime.timedelta(seconds=nova_events.CLAIM * LEASE_NEEDED)
    late: list[models.NovaEvent] = []
    while waiting and waiting[0][0].due_at < until:
        late += waiting.popleft()
    return late
