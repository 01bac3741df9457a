# SPDX-License-Identifier: Apache-2.0
"""The sweep: periodically finds overdue binds and tasks whose messages were lost."""

import datetime
import threading
from collections.abc import Callable
from typing import Any

from oslo_log import log

from cyborg import context, errors
from cyborg.clients.placement import Offers
from cyborg.conductor import availability, metrics
from cyborg.conductor.audit import Audit
from cyborg.conductor.endpoint import Endpoint
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.changes import of_agent
from cyborg.conductor.silent_hosts import SilentHosts
from cyborg.db.sqlalchemy import agents, clock, history, receipts, rounds, tasks
from cyborg.db.sqlalchemy.engine import Duplicate

LOG = log.getLogger(__name__)

#: the rounds that one conductor at a time does
SWEEP, AUDIT, PROFILES = 'sweep', 'audit', 'profiles'
#: seconds between two looks at how often profiles fit
PROFILES_INTERVAL = 60
#: figures of the sweep that are not metrics: the time since which a live agent must have sent a
#: heartbeat, and the time since which the history is complete
SILENT_SINCE = 'silent_since'
HISTORY_SINCE = 'history_since'
#: how long receipts are kept: longer than a transaction searches for its own
RECEIPTS_KEPT = datetime.timedelta(hours=1)


class Sweep(Endpoint):
    """A thread in each process. One conductor sweeps at a time; two at once do no harm."""

    #: set by the service if conductors can use Placement
    silent_hosts: SilentHosts | None = None
    #: set by the service; asks Placement how often profiles fit
    offers: Offers

    def start(self, before_each: Callable[[], None] = lambda: None) -> None:
        """Start the thread.

        :param before_each: called in each conductor, also when another one sweeps
        """
        self._before_each = before_each
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name='sweep', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        wait: float = self.conf.conductor.sweep_interval
        self._prepare()
        while not self._stopping.wait(wait):
            self._prepare()
            try:
                wait = self.round()
            except Exception:
                LOG.exception('A sweep failed; a conductor tries again when its lease ends.')
                wait = self.conf.conductor.sweep_interval

    def _prepare(self) -> None:
        try:
            self._before_each()
        except Exception:
            LOG.exception('The versions of agents could not be read; the next sweep tries again.')

    def round(self) -> float:
        """Sweep, count and audit, unless another conductor has the lease; returns the seconds until
        the next round."""
        interval: float = self.conf.conductor.sweep_interval
        lease = self._take(SWEEP, interval)
        if not isinstance(lease, rounds.Lease):
            return min(lease, interval)
        silent_since = self.silent_since()
        last = self._last_figures()
        self.sweep()
        self._note_silent(last.get(SILENT_SINCE), silent_since)
        with self.db.reader() as session:
            figures = metrics.figures(session, silent_since)
        moments = {
            SILENT_SINCE: silent_since.isoformat(),
            # never earlier than in the last sweep, which may have deleted more
            HISTORY_SINCE: max(
                last.get(HISTORY_SINCE, ''), self.history_since().isoformat(timespec='microseconds')
            ),
        }
        self._finish(lease, interval, figures | moments)
        if self.silent_hosts is not None:
            self.silent_hosts.round()
        self._audit()
        self._look_at_profiles()
        return interval

    def _take(self, name: str, interval: float) -> rounds.Lease | float:
        try:
            with self.db.writer() as session:
                return rounds.take(session, name, interval)
        except Duplicate:
            return interval  # another conductor has created the first lease at the same moment

    def _finish(self, lease: rounds.Lease, interval: float, figures: dict[str, Any]) -> None:
        with self.db.writer() as session:
            rounds.finish(session, lease, interval, figures)

    def _last_figures(self) -> dict[str, Any]:
        with self.db.reader() as session:
            last = rounds.found(session).get(SWEEP)
        return last.figures if last is not None else {}

    def sweep(self) -> None:
        """Fail overdue binds, send lost tasks again, delete old history and requests that were
        never bound."""
        age = datetime.timedelta(seconds=self.conf.conductor.sweep_interval)
        with self.unit_of_work(context.internal(), 'conductor') as unit:
            arqs.fail_overdue(unit)
            unit.hosts_to_remind.update(
                tasks.owing_hosts(unit.session, clock.now() - age, self.silent_since())
            )
        self._prune()
        self._delete_abandoned()

    def _note_silent(self, since: str | None, silent_since: datetime.datetime) -> None:
        """Note the agents that have become silent since the last round."""
        with self.unit_of_work(context.internal(), 'conductor', is_repeatable=True) as unit:
            before = datetime.datetime.fromisoformat(since) if since else None
            silent = agents.fallen_silent(unit.session, before, silent_since)
            for hostname, uuid in silent.items():
                unit.note(of_agent(hostname, 'down', log.WARNING, uuid=uuid))

    def _prune(self) -> None:
        since = self.history_since()
        with self.db.writer() as session:
            history.prune(session, since)
            tasks.prune(session, since)
            receipts.prune(session, clock.now() - RECEIPTS_KEPT, clock.now() - self._key_lifetime())

    def _key_lifetime(self) -> datetime.timedelta:
        return datetime.timedelta(seconds=self.conf.conductor.idempotency_key_lifetime)

    def _delete_abandoned(self) -> None:
        lifetime = datetime.timedelta(seconds=self.conf.conductor.initial_request_timeout)
        if lifetime:
            with self.unit_of_work(context.internal(), 'conductor') as unit:
                deleted = arqs.delete_abandoned(unit, lifetime)
            if deleted:
                LOG.info('Deleted %d accelerator requests that were never bound.', deleted)

    def _look_at_profiles(self) -> None:
        """Find out, for the metrics, how often profiles fit."""
        names = self.conf.conductor.metrics_profiles
        interval = max(PROFILES_INTERVAL, self.conf.conductor.sweep_interval)
        lease = self._take(PROFILES, interval) if names else None
        if not isinstance(lease, rounds.Lease):
            return
        try:
            fits = availability.fits(self.db, self.offers, self.silent_since(), names)
        except errors.Unavailable as error:
            LOG.warning('How often profiles fit is not known: %s', error.faultstring)
        else:
            self._finish(lease, interval, {'profile_fits': fits})

    def _audit(self) -> None:
        """Log and count the findings of an audit; nothing is changed."""
        interval = self.conf.conductor.audit_interval
        lease = self._take(AUDIT, interval) if interval else None
        if isinstance(lease, rounds.Lease):
            findings = Audit(self.db).look()
            for finding in findings:
                LOG.warning(
                    'Audit: %s Remedy: %s; cyborg-manage audit shows more.',
                    finding.what,
                    finding.remedy,
                )
            self._finish(lease, interval, {'audit_findings': len(findings)})
