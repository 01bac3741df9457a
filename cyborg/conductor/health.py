# SPDX-License-Identifier: Apache-2.0
"""Whether the conductor can use its database and Placement, for the health check of the API."""

import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_log import log

from cyborg.clients.placement import Offers
from cyborg.conductor.endpoint import Endpoint
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import rounds

LOG = log.getLogger(__name__)

#: seconds in which the database or Placement must answer
PATIENCE = 3
#: seconds for which an outcome is reused, however many API processes ask
LIFETIME = 5


class Check:
    """Checks one service. Its calls have one thread at most, so that a service that hangs does not
    block the threads that process messages."""

    def __init__(self, name: str, call: Callable[[], object], sentence: str) -> None:
        self._name, self._call, self._sentence = name, call, sentence
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        self._fresh_until = 0.0

    def failure(self) -> str | None:
        """Returns what is wrong, or None. It takes PATIENCE seconds at most."""
        with self._lock:
            if time.monotonic() < self._fresh_until:
                return self._failure
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name=f'check-{self._name}', daemon=True
                )
                self._thread.start()
            thread = self._thread
        thread.join(PATIENCE)
        return self._sentence if thread.is_alive() else self._failure

    def _run(self) -> None:
        try:
            self._call()
            self._failure = None
        except Exception as error:
            # callers of the health check have no token: the log has the rest
            LOG.warning('Health check of %s: %s', self._name, error)
            self._failure = self._sentence
        self._fresh_until = time.monotonic() + LIFETIME


class Health(Endpoint):
    def __init__(self, *parts: Any, offers: Offers) -> None:
        super().__init__(*parts)
        self._checks = {
            'database': Check(
                'the database', self._read, 'The database of the conductor does not answer.'
            ),
            'placement': Check(
                'Placement', offers.check, 'Placement does not answer the conductor.'
            ),
        }

    def check_health(self, context: RequestContext, names: list[str]) -> dict[str, str | None]:
        """Returns for each named part, ``database`` or ``placement``, what is wrong with it, or
        None."""
        return {name: self._checks[name].failure() for name in names if name in self._checks}

    def _read(self) -> None:
        with self.db.reader() as session:
            rounds.found(session)
