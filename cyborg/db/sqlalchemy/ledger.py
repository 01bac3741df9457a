# SPDX-License-Identifier: Apache-2.0
"""What one transaction does: steps and events of requests, the work it leaves, its news."""

import types
from collections.abc import Iterable
from typing import Self

from sqlalchemy import orm

from cyborg import objects
from cyborg.db.sqlalchemy import agents, history, models, nova_events
from cyborg.db.sqlalchemy.notices import Notice
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event


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
        history.record(self.session, self._cause, self._steps)
        if self._outdated:
            nova_events.forget(self.session, self._outdated)
        if self._told:
            self.events = nova_events.add(self.session, self._told, self._cause.request_id)
        agents.distrust(self.session, self.stale_hosts)
