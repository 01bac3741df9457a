# SPDX-License-Identifier: Apache-2.0
"""How many statements, messages and Placement calls something takes."""

import threading
from collections import Counter as Counts
from typing import Any

import sqlalchemy as sa

from cyborg import rpc
from cyborg.standalone import Standalone

#: what these do, no request waits for
BACKGROUND = {'outbox', 'sweep'}
#: what opens or ends a transaction; all else is a statement
BRACKETS = ('BEGIN', 'COMMIT', 'ROLLBACK', 'SAVEPOINT', 'RELEASE')


class Counter:
    """Counts, between start and stop, what the parts of one process do."""

    def __init__(self, standalone: Standalone) -> None:
        self._engine = standalone.db.engine
        self._placement = standalone.placement
        self.counts: Counts[str] = Counts()
        self._original = rpc.Client.call, rpc.Client.cast

    def start(self) -> None:
        self.counts.clear()
        sa.event.listen(self._engine, 'before_cursor_execute', self._note_statement)
        rpc.Client.call, rpc.Client.cast = (
            self._noted(each, name) for each, name in
            zip(self._original, ('calls', 'casts'), strict=True))
        self._placement.request = self._noted(type(self._placement).request.__get__(
            self._placement), 'placement')

    def stop(self) -> dict[str, int]:
        sa.event.remove(self._engine, 'before_cursor_execute', self._note_statement)
        rpc.Client.call, rpc.Client.cast = self._original
        del self._placement.request
        return {name: self.counts[name] for name in (
            'statements', 'background', 'calls', 'casts', 'placement')}

    def _note_statement(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith(BRACKETS):
            name = threading.current_thread().name
            self.counts['background' if name in BACKGROUND else 'statements'] += 1

    def _noted(self, function: Any, name: str) -> Any:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            return function(*args, **kwargs)
        return noted
