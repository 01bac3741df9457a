# SPDX-License-Identifier: Apache-2.0
"""Counts the SQL statements, messages and Placement calls of each operation.

The counts do not vary from run to run.
"""

import threading
import uuid
from collections import Counter as Counts
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa

from cyborg import rpc
from cyborg.standalone import Standalone
from tools.bench.figures import Figure
from tools.bench.scale import Scale
from tools.bench.sites import HOST, PROFILE, Site
from tools.bench.stored_rows import StoredRows

NAME = 'counts'
PATH = '/accelerator_requests'
#: methods of rpc.Client that send a message -> what is counted
SENDING = {'_attempt': 'calls', 'cast': 'casts'}
COUNTED = {'statements': 'statements', 'calls': 'RPC calls', 'casts': 'RPC casts'}
#: threads whose statements no request waits for
BACKGROUND = {'outbox', 'sweep'}
#: statements that begin or end a transaction, which are not counted
BRACKETS = ('BEGIN', 'COMMIT', 'ROLLBACK', 'SAVEPOINT', 'RELEASE')


def measure(site: Site, scale: Scale) -> Iterator[Figure]:
    """Perform each operation once, with as many stored rows as the scale says."""
    with StoredRows(site.database) as rows:
        rows.grow(max(scale.devices))
        for name, operate in _operations(site):
            with site.counted() as counts:
                operate()
            for key, words in COUNTED.items():
                yield Figure(NAME, words, '1', counts[key], {'operation': name})


def _operations(site: Site) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the operations of one request, then the lists. Each is performed before the next."""
    instance, made = str(uuid.uuid4()), []
    yield (
        'create',
        lambda: made.extend(site.ask('POST', PATH, {'device_profile_name': PROFILE})['arqs']),
    )
    yield (
        'bind',
        lambda: site.ask(
            'PATCH',
            PATH,
            {
                made[0]['uuid']: [
                    {'op': 'add', 'path': '/hostname', 'value': HOST},
                    {'op': 'add', 'path': '/device_rp_uuid', 'value': site.providers[0]},
                    {'op': 'add', 'path': '/instance_uuid', 'value': instance},
                ]
            },
        ),
    )
    yield 'read by instance', lambda: site.ask('GET', f'{PATH}?instance={instance}')
    yield 'delete', lambda: site.ask('DELETE', f'{PATH}?instance={instance}')
    for noun in ('devices', 'deployables', 'accelerator_requests', 'device_profiles', 'agents'):
        yield f'list {noun}', lambda noun=noun: site.ask('GET', f'/{noun}?limit=1000')


class Counter:
    """Counts what an all-in-one process does between start and stop."""

    def __init__(self, standalone: Standalone) -> None:
        self._engine = standalone.db.engine
        self._placement = standalone.placement
        self.counts: Counts[str] = Counts()
        self._original = [getattr(rpc.Client, name) for name in SENDING]

    def start(self) -> None:
        self.counts.clear()
        sa.event.listen(self._engine, 'before_cursor_execute', self._count_statement)
        for (name, counted), original in zip(SENDING.items(), self._original, strict=True):
            setattr(rpc.Client, name, self._counting(original, counted))
        self._placement.request = self._counting(
            type(self._placement).request.__get__(self._placement), 'placement'
        )

    def stop(self) -> dict[str, int]:
        sa.event.remove(self._engine, 'before_cursor_execute', self._count_statement)
        for name, original in zip(SENDING, self._original, strict=True):
            setattr(rpc.Client, name, original)
        del self._placement.request
        return {
            name: self.counts[name]
            for name in ('statements', 'background', 'calls', 'casts', 'placement')
        }

    def _count_statement(self, connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith(BRACKETS):
            name = threading.current_thread().name
            self.counts['background' if name in BACKGROUND else 'statements'] += 1

    def _counting(self, function: Any, name: str) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            self.counts[name] += 1
            return function(*args, **kwargs)

        return counting
