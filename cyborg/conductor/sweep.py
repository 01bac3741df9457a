# SPDX-License-Identifier: Apache-2.0
"""Looks from time to time for what nobody finished: overdue binds, work that got lost."""

import datetime
import threading
import time

from oslo_log import log

from cyborg import context
from cyborg.conductor.audit import Audit
from cyborg.conductor.endpoint import Endpoint
from cyborg.db.sqlalchemy import (
    attach_handles,
    binding,
    history,
    models,
    programming,
    releasing,
)

LOG = log.getLogger(__name__)


class Sweep(Endpoint):
    """One thread a process; two that sweep at once do no harm."""

    _next_audit = 0.0

    def start(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name='sweep', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self.conf.conductor.sweep_interval):
            try:
                self.sweep()
            except Exception:
                LOG.exception('A sweep failed; the next one tries again.')

    def sweep(self) -> None:
        """Fail what is overdue, remind hosts of work that a lost message was about, forget
        old history, delete requests that nobody binds."""
        age = datetime.timedelta(seconds=self.conf.conductor.sweep_interval)
        with self.change(context.internal(), 'conductor') as ledger:
            binding.fail_overdue(ledger)
            since = models.now() - age, self.silent_since()
            late = {*attach_handles.owing_hosts(ledger.session, *since),
                    *programming.owing_hosts(ledger.session, *since)}
        self.tell_hosts(context.internal(), {}, sorted(late))
        self._prune()
        self._delete_abandoned()
        self._audit()

    def _prune(self) -> None:
        keep = datetime.timedelta(days=self.conf.conductor.history_days)
        with self.db.writer() as session:
            history.prune(session, models.now() - keep)

    def _delete_abandoned(self) -> None:
        lifetime = datetime.timedelta(seconds=self.conf.conductor.initial_request_timeout)
        if lifetime:
            with self.change(context.internal(), 'conductor') as ledger:
                deleted = releasing.delete_abandoned(ledger, lifetime)
            if deleted:
                LOG.info('Deleted %d accelerator requests that nobody bound.', deleted)

    def _audit(self) -> None:
        """Look for what should not be; operators are told, nothing is touched."""
        interval = self.conf.conductor.audit_interval
        if interval and time.monotonic() >= self._next_audit:
            self._next_audit = time.monotonic() + interval
            for finding in Audit(self.db).look():
                LOG.warning('Audit: %s Remedy: %s; cyborg-manage audit tells more.',
                            finding.what, finding.remedy)
