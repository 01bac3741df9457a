# SPDX-License-Identifier: Apache-2.0
"""Tells Nova what became of its requests: state first, then the event, until Nova takes it."""

import contextlib
import datetime
import itertools
import queue
import threading
import time
from collections.abc import Sequence

from oslo_log import log

from cyborg import errors
from cyborg.clients.nova import Nova
from cyborg.db.sqlalchemy import arqs, engine, models, nova_events
from cyborg.db.sqlalchemy.history import Cause
from cyborg.db.sqlalchemy.ledger import Ledger
from cyborg.objects.arq_states import Event

LOG = log.getLogger(__name__)

CAUSE = Cause('conductor')
BATCH = 200
MOST_FRESH = 1000  #: transactions whose events wait in memory
SETTLED_TOGETHER = 1.0  #: seconds for which events that Nova has heard may wait to be removed
LONGEST_PAUSE = 300  #: seconds before an event that Nova refused is sent again
LONGEST_REST = 30  #: seconds for which a Nova that is down is left alone
#: Nova has it; has no host for the server yet and will read the state; or knows no such server
SETTLED = frozenset({200, 404, 422})


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
    """One thread a process. Any number of them share the table without sending twice."""

    def __init__(self, db: engine.Database, nova: Nova, interval: float,
                 patience: float) -> None:
        self._db = db
        self._nova = nova
        self._interval = interval
        self._patience = datetime.timedelta(seconds=patience)  #: with a Nova that refuses
        self._circuit = Circuit()
        self._fresh: queue.SimpleQueue[Sequence[models.NovaEvent]] = queue.SimpleQueue()
        self._look_at = 0.0  #: when to look into the table
        self._heard: set[str] = set()  #: claims of which nothing is left to send
        self._settle_at = 0.0  #: when to remove them from the table
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
        slow or down, waits there until it is nobody's."""
        if events and self._fresh.qsize() < MOST_FRESH:
            self._fresh.put(events)
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
                self._round()
            except Exception:
                LOG.exception('Sending events to Nova failed; they stay in the outbox.')
                self._look_at = time.monotonic() + self._interval
            if rest := self._circuit.wait:
                self._stopping.wait(rest)
                self._look_at = 0.0
            else:
                until = min(self._look_at, self._settle_at) if self._heard else self._look_at
                self._wake.wait(max(0.0, until - time.monotonic()))
        self.deliver_fresh()  # that is, give them back
        self.settle()

    def _round(self) -> None:
        self.deliver_fresh()
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._interval
            while not self._stopping.is_set() and self.deliver_due():
                pass
        if time.monotonic() >= self._settle_at:
            self.settle()

    def take_over(self) -> None:
        """Have sent what those were sending who ran here before and were killed."""
        with self._db.writer() as session:
            nova_events.take_over(session)

    def deliver_fresh(self) -> None:
        """Send what was handed to us, as far as it is still ours."""
        events: list[models.NovaEvent] = []
        with contextlib.suppress(queue.Empty):
            while True:
                events += self._fresh.get_nowait()
        now = models.now()
        self._send_all([event for event in events if event.due_at > now])

    def deliver_due(self) -> bool:
        """Send what is due in the table; False if there is nothing more to send now."""
        with self._db.writer() as session:
            events = nova_events.claim(session, BATCH)
        self._send_all(events)
        return bool(events) and not self._circuit.wait

    def _send_all(self, events: Sequence[models.NovaEvent]) -> None:
        """One request a server, of what was claimed together; each server's in their order."""
        by_server = sorted(events, key=lambda event: event.instance_uuid)
        for _, group in itertools.groupby(
                by_server, key=lambda event: (event.instance_uuid, event.claim)):
            self._send(list(group))
        if events and not self._heard:
            self._settle_at = time.monotonic() + SETTLED_TOGETHER
        self._heard.update(event.claim for event in events if event.claim)

    def _send(self, events: list[models.NovaEvent]) -> None:
        """Send those of one server; what Nova did not take waits."""
        codes = [0] * len(events)
        if not self._circuit.wait and not self._stopping.is_set():
            try:
                codes = self._nova.send_events(
                    [(event.instance_uuid, event.arq_uuid, event.status) for event in events],
                    events[0].request_id)
                self._circuit.note(is_up=True)
            except errors.Unavailable as error:
                self._circuit.note(is_up=False)
                LOG.warning('Events wait in the outbox, Nova is left alone for %.0f s: %s',
                            self._circuit.wait, error.faultstring)
        for event, code in zip(events, codes, strict=True):
            # one that is refused is sent again; of a server that Nova does not know, the audit
            # finds what is left
            level = log.DEBUG if code in (0, 200, 422) else log.WARNING
            LOG.log(level, 'Event %s of request %s of server %s: Nova answered %s.',
                    event.status, event.arq_uuid, event.instance_uuid, code or 'nothing')
        rest = [event for event, code in zip(events, codes, strict=True)
                if code not in SETTLED]
        unbearable = [event for event in rest if codes[0] and self._is_unbearable(event)]
        if unbearable:
            self._give_up(unbearable)
        if patient := [event for event in rest if event not in unbearable]:
            self._postpone(patient, is_refused=bool(codes[0]))

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
    def _give_up(self, events: list[models.NovaEvent]) -> None:
        """Send these of one claim no more; operators are told, and can have it done."""
        since = {event.arq_uuid: event.refused_since for event in events}
        with self._db.writer() as session, Ledger(session, CAUSE) as ledger:
            rows = arqs.locked(session, models.ExtArq.uuid.in_(since))
            given_up = nova_events.give_up(session, events)
            for row in rows:
                if row.uuid in given_up:
                    ledger.step(row, Event.UNHEARD, row.state, row.state,
                                f'Nova has refused to hear of it since '
                                f'{since[row.uuid]:%Y-%m-%d %H:%M} UTC.')
        for event in (event for event in events if event.arq_uuid in given_up):
            LOG.error('Event %s of request %s of server %s is given up: Nova has refused it since '
                      '%s. When Nova takes such events again, cyborg-manage audit --fix sends it.',
                      event.status, event.arq_uuid, event.instance_uuid, event.refused_since)

    @engine.retried
    def settle(self) -> None:
        """Remove what Nova has heard: many at once, for nobody waits for that."""
        if self._heard:
            with self._db.writer() as session:
                nova_events.remove(session, self._heard)
            self._heard.clear()
