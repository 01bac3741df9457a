# SPDX-License-Identifier: Apache-2.0
"""The outbox: sends events about requests to Nova after the commit, and retries until Nova
accepts them."""

import collections
import datetime
import heapq
import itertools
import random
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oslo_log import log

from cyborg import backoff, errors, metrics
from cyborg.clients.nova import COMPLETED, Nova
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import clock, engine, models, nova_events
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects.arq_states import IN_USE, Event

LOG = log.getLogger(__name__)

CAUSE = Cause('conductor')
BATCH = 50  #: events that are claimed at once
MOST_SERVERS = 20  #: in one call to Nova; with more, a Nova that is slow would answer late
#: for how long an event that a request is Bound is sent without a look whether that is still so:
#: Nova reads the request's state when it hears of it, and ignores what nobody waits for. (It
#: believes an event that a bind has failed, and ends the server's build.)
TRUSTED_FOR = datetime.timedelta(seconds=1)
MOST_FRESH = 1000  #: servers whose new events wait in memory
DELETED_TOGETHER = 1.0  #: seconds for which events that Nova has accepted may wait to be deleted
#: the part of its lease that an event must have left to be sent, so that a POST that hangs until
#: its time-out ends before another conductor takes the event
LEASE_NEEDED = 2 / 3
LONGEST_PAUSE = 300  #: seconds before an event that Nova refused is sent again
LONGEST_REST = 30  #: seconds for which no call is made to a Nova that is down
#: Nova has the event; it has no host for the server yet and will read the state; or it does not
#: know the server
FINAL_CODES = frozenset({200, 404, 422})
#: the answers of FINAL_CODES, as metrics name them
RESULTS = {200: 'accepted', 404: 'unknown_server', 422: 'without_host'}
#: the server may be deleted without a call to Cyborg: Nova does not delete the requests of a
#: server that is being built and has no host
MAY_VANISH = frozenset({404, 422})
MOST_CHECKS = 10_000  #: servers that are checked later
#: a conductor that starts checks the servers of requests that were bound since then: the one that
#: bound them may have been stopped. A server gets its host soon after its requests are bound.
BOUND_RECENTLY = datetime.timedelta(minutes=10)
#: seconds over which it spreads these checks: processes that start at the same moment check the
#: same servers
SPREAD = 60.0
CHECKED_TOGETHER = 1.0  #: seconds after which no further check delays events
BUILD = 'BUILD'  #: the status of a server that is being built

Waiting = collections.deque[list[models.NovaEvent]]


@dataclass(frozen=True, order=True)
class ServerCheck:
    """A server whose existence is checked later, because Nova may delete it without a call to
    Cyborg."""

    at: float
    server: str
    requests: list[str]


class Circuit:
    """A circuit breaker: after a failure Nova is not called for a while."""

    def __init__(self) -> None:
        self._failures = 0
        self._closed_at = 0.0

    @property
    def wait(self) -> float:
        """Returns the seconds until Nova may be called again."""
        return max(0.0, self._closed_at - time.monotonic())

    def note(self, is_up: bool) -> None:
        """Record the outcome of a call."""
        self._failures = 0 if is_up else self._failures + 1
        self._closed_at = time.monotonic() + backoff.pause(self._failures, LONGEST_REST)


class Outbox:
    """A thread in each process. Any number of them share the table, and each event is sent once.

    New events of this process and due events of the table are sent alternately, so that a backlog
    does not delay new events.
    """

    def __init__(
        self,
        db: engine.Database,
        nova: Nova,
        interval: float,
        patience: float,
        unknown_server_timeout: float = 0,
    ) -> None:
        self._db = db
        self._nova = nova
        self._interval = interval
        #: how long an event that Nova refuses is retried
        self._patience = datetime.timedelta(seconds=patience)
        self._check_after = unknown_server_timeout
        #: a heap of servers that may be deleted, with their requests and the time of the check
        self._checks: list[ServerCheck] = []
        self._circuit = Circuit()
        #: of checks: Nova may fail to show one server, and accept events about others
        self._check_circuit = Circuit()
        #: each entry has the events of one server and one claim; oldest first
        self._fresh: Waiting = collections.deque()
        self._due: Waiting = collections.deque()
        self._look_at = 0.0  #: when to read the table
        self._accepted: list[models.NovaEvent] = []  #: accepted, to be deleted from the table
        self._delete_at = 0.0  #: when to delete them
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name='outbox', daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Have the thread read the table now."""
        self._look_at = 0.0
        self._wake.set()

    def send(self, events: Sequence[models.NovaEvent]) -> None:
        """Send events that were just stored and that this process has claimed. If too many wait,
        because Nova is slow or down, they stay in the table until their lease ends."""
        if events and len(self._fresh) < MOST_FRESH:
            self._fresh.extend(_by_server(events))
            self._wake.set()

    def stop(self) -> None:
        """Finish the call in progress and stop; unsent events stay in the table."""
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
                self._delete_accepted_in_time()
                self.check_servers()
            except Exception:
                LOG.exception('Sending events to Nova failed; they stay in the outbox.')
                self._look_at = self._delete_at = time.monotonic() + self._interval
            if rest := self._circuit.wait:
                self._stopping.wait(rest)
                self._look_at = 0.0
            else:
                self._wake.wait(max(0.0, self._next_at() - time.monotonic()))
        for waiting in (self._fresh, self._due):
            self._give_back(list(itertools.chain.from_iterable(waiting)))
        self.delete_accepted()

    def _next_at(self) -> float:
        """Returns when something is due."""
        times = [self._look_at]
        if self._accepted:
            times.append(self._delete_at)
        if self._checks:
            times.append(max(self._checks[0].at, time.monotonic() + self._check_circuit.wait))
        return min(times)

    @property
    def _is_resting(self) -> bool:
        return self._stopping.is_set() or self._circuit.wait > 0

    def take_over(self) -> None:
        """Take over the events that killed processes of this host had claimed, and the checks of
        servers that stopped conductors had in memory."""
        with self._db.writer() as session:
            nova_events.take_over(session)
        if self._check_after:
            since = BOUND_RECENTLY + datetime.timedelta(seconds=self._check_after)
            with self._db.reader() as session:
                bound = arqs_db.changed_since(session, IN_USE, clock.now() - since)
            for server, requests in bound.items():
                self._check_later(server, requests, random.uniform(0, SPREAD))

    def deliver(self) -> None:
        """Send new events and due events in turns until none is left."""
        while not self._is_resting:
            self._give_back([*_late(self._fresh), *_late(self._due)])
            if not self._due and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + self._interval
                self._claim()
            if not self._fresh and not self._due:
                return
            for waiting in (self._fresh, self._due):
                if waiting and not self._is_resting:
                    self._send([waiting.popleft() for _ in range(min(len(waiting), MOST_SERVERS))])

    def _claim(self) -> None:
        """Claim some due events of the table."""
        mark = nova_events.mark()  # so that a retry finds the events that the first try claimed

        @engine.retried
        def claim() -> list[models.NovaEvent]:
            with self._db.writer() as session:
                return nova_events.claim(session, BATCH, mark)

        if events := claim():
            self._look_at = 0.0  # there may be more
            self._due.extend(_by_server(events))

    def _send(self, groups: list[list[models.NovaEvent]]) -> None:
        """Send the events of some servers together, as far as they are still true. What Nova
        refuses is sent again for each server alone: one server may be the reason for all."""
        self._delete_accepted_in_time()
        groups = self._still_true(groups)
        refused = self._post(groups) if groups else []
        if len(groups) > 1:
            refused = [event for group in _by_server(refused) for event in self._post([group])]
        if hopeless := [event for event in refused if self._must_give_up(event)]:
            self._give_up(hopeless)
        for group in _by_server(event for event in refused if event not in hopeless):
            self._postpone(group, is_refused=True)

    def _still_true(self, groups: list[list[models.NovaEvent]]) -> list[list[models.NovaEvent]]:
        """Returns the groups without the events that are no longer true."""
        events = list(itertools.chain.from_iterable(groups))
        before = clock.now() - TRUSTED_FOR
        if all(event.status == COMPLETED and event.created_at > before for event in events):
            return groups
        with self._db.reader() as session:
            return list(_by_server(nova_events.still_true(session, events)))

    def _post(self, groups: list[list[models.NovaEvent]]) -> list[models.NovaEvent]:
        """Send events to Nova in one call; returns those that it refuses. Those that it takes are
        deleted later. If Nova does not answer, all of them wait."""
        events = list(itertools.chain.from_iterable(groups))
        if self._is_resting:  # another call has failed since
            self._give_back(events)
            return []
        began = time.monotonic()
        try:
            codes = self._nova.send_events(
                [(event.instance_uuid, event.arq_uuid, event.status) for event in events],
                events[0].request_id if len(groups) == 1 else None,
            )
        except errors.Unavailable as error:
            self._circuit.note(is_up=False)
            metrics.NOVA_EVENTS.labels('unreachable').inc(len(events))
            LOG.warning(
                'Events wait in the outbox; Nova is not called for %.0f s: %s',
                self._circuit.wait,
                error.faultstring,
            )
            for group in groups:
                self._postpone(group, is_refused=False)
            return []
        self._circuit.note(is_up=True)
        answers = dict(zip(events, codes, strict=True))
        for event, code in answers.items():
            metrics.NOVA_EVENTS.labels(RESULTS.get(code, 'refused')).inc()
            level = log.DEBUG if code in (200, 422) else log.WARNING
            LOG.log(
                level,
                'Event %s of request %s of server %s: Nova answered %s.',
                event.status,
                event.arq_uuid,
                event.instance_uuid,
                code,
            )
        if not self._accepted:
            self._delete_at = began + DELETED_TOGETHER
        self._accepted += [event for event in events if answers[event] in FINAL_CODES]
        for group in groups:
            self._check_later(
                group[0].instance_uuid,
                [event.arq_uuid for event in group if answers[event] in MAY_VANISH],
            )
        return [event for event in events if answers[event] not in FINAL_CODES]

    def _must_give_up(self, event: models.NovaEvent) -> bool:
        """Returns whether Nova has refused the event for so long that it is given up."""
        since = event.refused_since
        return since is not None and clock.now() - since >= self._patience

    def _check_later(self, server: str, requests: list[str], delay: float = 0.0) -> None:
        if self._check_after and requests and len(self._checks) < MOST_CHECKS:
            at = time.monotonic() + self._check_after + delay
            heapq.heappush(self._checks, ServerCheck(at, server, requests))

    def check_servers(self) -> None:
        """Delete the requests of servers that Nova no longer has.

        The list of checks is in memory only. The next conductor that starts makes it again. Only
        some of the checks that are due are done, so that events do not wait for all of them.
        """
        until = time.monotonic() + CHECKED_TOGETHER
        while self._is_check_due:
            self._check(heapq.heappop(self._checks))
            if self._fresh or time.monotonic() >= until:
                return

    @property
    def _is_check_due(self) -> bool:
        if not self._checks or self._is_resting or self._check_circuit.wait:
            return False
        return self._checks[0].at <= time.monotonic()

    def _check(self, check: ServerCheck) -> None:
        """Check a server. If that fails, or while the server is being built, check it later."""
        is_done = False
        try:
            status = self._nova.status(check.server)
            if status is None and self._nova.sees_all():
                self._delete_requests(check)
            is_done = status != BUILD
        except errors.Unavailable as error:
            self._check_circuit.note(is_up=False)
            LOG.debug('Server %s is checked later: %s', check.server, error.faultstring)
        except Exception:  # the check is in memory only
            self._check_circuit.note(is_up=False)
            LOG.exception('The check of server %s failed; it is made again later.', check.server)
        else:
            self._check_circuit.note(is_up=True)
        if not is_done:
            self._check_later(check.server, check.requests)

    @engine.retried
    def _delete_requests(self, check: ServerCheck) -> None:
        """Delete these requests of a server that is gone."""
        with transact(self._db, CAUSE) as unit:
            rows = [
                row
                for row in arqs_db.named(unit.session, check.requests)
                if row.instance_uuid == check.server
            ]
            arqs.delete_rows(unit, rows, 'Nova no longer has its server.')
            deleted = [row.uuid for row in rows]
        for uuid in deleted:
            LOG.info('Request %s is deleted: Nova no longer has its server %s.', uuid, check.server)

    @engine.retried
    def _postpone(self, events: list[models.NovaEvent], *, is_refused: bool) -> None:
        """Send these events of one claim later."""
        pause = self._circuit.wait or backoff.pause(events[0].attempts + 1, LONGEST_PAUSE)
        with self._db.writer() as session:
            nova_events.postpone(
                session,
                events,
                clock.now() + datetime.timedelta(seconds=pause),
                is_refused=is_refused,
            )

    @engine.retried
    def _give_back(self, events: list[models.NovaEvent]) -> None:
        """Release the claim on these events, so that any conductor may send them."""
        if events:
            with self._db.writer() as session:
                nova_events.postpone(session, events, clock.now(), is_refused=False)
            self._look_at = 0.0

    @engine.retried
    def _give_up(self, events: list[models.NovaEvent]) -> None:
        """Give up these events of one claim. Operators are told and can have them sent again."""
        since = {event.arq_uuid: event.refused_since for event in events}
        with transact(self._db, CAUSE) as unit:
            rows = arqs_db.named(unit.session, since)
            given_up = nova_events.give_up(unit.session, events)
            for row in rows:
                if row.uuid in given_up:
                    unit.step(
                        row,
                        Event.UNHEARD,
                        row.state,
                        row.state,
                        f'Nova has refused the event about it since '
                        f'{since[row.uuid]:%Y-%m-%d %H:%M} UTC.',
                    )
        for event in (event for event in events if event.arq_uuid in given_up):
            metrics.NOVA_EVENTS.labels('given_up').inc()
            LOG.error(
                'Event %s of request %s of server %s is given up: Nova has refused it since '
                '%s. When Nova takes such events again, cyborg-manage audit --fix sends it.',
                event.status,
                event.arq_uuid,
                event.instance_uuid,
                event.refused_since,
            )

    def _delete_accepted_in_time(self) -> None:
        if time.monotonic() >= self._delete_at:
            self.delete_accepted()

    @engine.retried
    def delete_accepted(self) -> None:
        """Delete accepted events, many at once. No caller waits for this."""
        if self._accepted:
            with self._db.writer() as session:
                nova_events.remove(session, self._accepted)
            self._accepted.clear()


def _by_server(events: Iterable[models.NovaEvent]) -> Iterable[list[models.NovaEvent]]:
    """Group events into calls: those of one server and one claim, in order."""
    groups: dict[tuple[str, str | None], list[models.NovaEvent]] = {}
    for event in events:
        groups.setdefault((event.instance_uuid, event.claim), []).append(event)
    return groups.values()


def _late(waiting: Waiting) -> list[models.NovaEvent]:
    """Remove events whose lease may end before Nova answers; returns them."""
    until = clock.now() + datetime.timedelta(seconds=nova_events.CLAIM * LEASE_NEEDED)
    late: list[models.NovaEvent] = []
    while waiting and waiting[0][0].due_at < until:
        late += waiting.popleft()
    return late
