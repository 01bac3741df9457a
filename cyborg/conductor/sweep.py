# SPDX-License-Identifier: Apache-2.0
"""Looks from time to time for what nobody finished: overdue binds, work that got lost."""

import datetime
import threading
from typing import Any

from oslo_log import log

from cyborg import context
from cyborg.conductor import metrics
from cyborg.conductor.audit import Audit
from cyborg.conductor.endpoint import Endpoint
from cyborg.conductor.engine import arqs
from cyborg.db.sqlalchemy import history, models, receipts, rounds, tasks
from cyborg.db.sqlalchemy.engine import Duplicate

LOG = log.getLogger(__name__)

#: the rounds that one conductor at a time does
SWEEP, AUDIT = 'sweep', 'audit'
#: long after whoever left one has stopped to ask for it
RECEIPTS_KEPT = datetime.timedelta(hours=1)


class Sweep(Endpoint):
    """A thread in each process waits for its turn; two that sweep at once do no harm."""

    def start(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name='sweep', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        wait: float = self.conf.conductor.sweep_interval
        while not self._stopping.wait(wait):
            try:
                wait = self.round()
            except Exception:
                LOG.exception('A sweep failed; when its lease ends, another conductor tries.')
                wait = self.conf.conductor.sweep_interval

    def round(self) -> float:
        """Sweep, count and audit, unless another conductor does; returns the seconds until that
        is due again."""
        interval: float = self.conf.conductor.sweep_interval
        lease = self._take(SWEEP, interval)
        if not isinstance(lease, rounds.Lease):
            return min(lease, interval)
        self.sweep()
        with self.db.reader() as session:
            figures = metrics.figures(session, self.silent_since())
        self._finish(lease, interval, figures)
        self._audit()
        return interval

    def _take(self, name: str, interval: float) -> rounds.Lease | float:
        try:
            with self.db.writer() as session:
                return rounds.take(session, name, interval)
        except Duplicate:
            return interval  # another conductor was first, the first time of all

    def _finish(self, lease: rounds.Lease, interval: float, figures: dict[str, Any]) -> None:
        with self.db.writer() as session:
            rounds.finish(session, lease, interval, figures)

    def sweep(self) -> None:
        """Fail what is overdue, remind hosts of work that a lost message was about, forget
        old history, delete requests that nobody binds."""
        age = datetime.timedelta(seconds=self.conf.conductor.sweep_interval)
        with self.unit_of_work(context.internal(), 'conductor') as unit:
            arqs.fail_overdue(unit)
            unit.hosts_to_remind.update(tasks.owing_hosts(
                unit.session, models.now() - age, self.silent_since()))
        self._prune()
        self._delete_abandoned()

    def _prune(self) -> None:
        keep = datetime.timedelta(days=self.conf.conductor.history_days)
        with self.db.writer() as session:
            history.prune(session, models.now() - keep)
            tasks.prune(session, models.now() - keep)
            receipts.prune(session, models.now() - RECEIPTS_KEPT)

    def _delete_abandoned(self) -> None:
        lifetime = datetime.timedelta(seconds=self.conf.conductor.initial_request_timeout)
        if lifetime:
            with self.unit_of_work(context.internal(), 'conductor') as unit:
                deleted = arqs.delete_abandoned(unit, lifetime)
            if deleted:
                LOG.info('Deleted %d accelerator requests that nobody bound.', deleted)

    def _audit(self) -> None:
        """Look for what should not be; operators are told, nothing is touched."""
        interval = self.conf.conductor.audit_interval
        lease = self._take(AUDIT, interval) if interval else None
        if isinstance(lease, rounds.Lease):
            findings = Audit(self.db).look()
            for finding in findings:
                LOG.warning('Audit: %s Remedy: %s; cyborg-manage audit tells more.',
                            finding.what, finding.remedy)
            self._finish(lease, interval, {'audit_findings': len(findings)})
