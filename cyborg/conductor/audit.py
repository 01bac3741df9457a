# SPDX-License-Identifier: Apache-2.0
"""The audit: compares requests, handles, Placement's allocations and Nova's servers.

Each finding names its remedy. Requests that are changing are left out, so that an audit can run at
any time. Fixes go through the engine.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from cyborg import errors
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import UnitOfWork, transact
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import attach_handles, audit, clock, engine, nova_events
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects import arq_states
from cyborg.objects.arq_states import State

CAUSE = Cause('audit')
#: a younger difference may only mean that a message has not arrived yet
GRACE = datetime.timedelta(minutes=10)
#: the client has abandoned a request that is unbound for longer
LONG_UNUSED = datetime.timedelta(days=1)

#: all other states by name, because a database cannot use an index for NOT IN
NOT_HOLDING = tuple(state for state in State if state not in arq_states.HOLDING)
#: a server may also be deleted while its device is prepared again, which is retried without limit
IN_USE = tuple(arq_states.IN_USE)
UNUSED = (State.INITIAL, State.BIND_FAILED, State.UNBOUND)

Fix = Callable[[UnitOfWork], None]


@dataclass(frozen=True)
class Finding:
    """One disagreement."""

    what: str  #: one sentence
    remedy: str  #: what the audit, with ``fix``, or the operator does about it
    fix: Fix | None = None


class Allocations(Protocol):
    """The queries of an audit to Placement."""

    def providers_of(self, consumer: str) -> set[str]:
        """Returns the providers on which a server has allocations."""

    def other_servers_on(self, provider: str, servers: set[str]) -> set[str]:
        """Returns the consumers of a provider other than these servers."""


class Servers(Protocol):
    """The queries of an audit to Nova."""

    def exists(self, server: str) -> bool:
        """Returns whether Nova knows a server."""

    def has_devices(self, server: str) -> bool:
        """Returns whether a server is on a host and no task of Nova is in progress for it."""


class Audit:
    """Finds disagreements and fixes them on demand. Skips services that are not configured."""

    def __init__(
        self,
        db: engine.Database,
        allocations: Allocations | None = None,
        servers: Servers | None = None,
        grace: datetime.timedelta = GRACE,
    ) -> None:
        self._db = db
        self._allocations = allocations
        self._servers = servers
        self._grace = grace

    def look(self) -> list[Finding]:
        """Returns all findings."""
        with self._db.reader() as session:
            before = clock.now() - self._grace
            findings = [
                *_handles(audit.handles_held_in(session, NOT_HOLDING)),
                *_requests(audit.wrongly_holding(session, arq_states.HOLDING)),
                *_unused(audit.unchanged(session, UNUSED, clock.now() - LONG_UNUSED)),
                *_clean_ups(audit.waiting_for_clean_up(session, before)),
                *_quarantined(audit.quarantined(session)),
                *_programmings(audit.waiting_for_image(session, before)),
                *_outbox(
                    audit.count_waiting_events(session, before), nova_events.given_up(session)
                ),
            ]
        try:
            findings.extend(self._with_others(before))
        except errors.Unavailable as error:
            findings.append(
                Finding(
                    f'The comparison is not complete: {error.faultstring}',
                    'run the audit again when that service is available',
                )
            )
        return findings

    def mend(self, findings: Iterable[Finding]) -> int:
        """Fix the findings that have a fix, each in its own transaction; returns how many."""
        fixed = 0
        for finding in findings:
            if finding.fix is not None:
                self._run(finding.fix)
                fixed += 1
        return fixed

    @engine.retried
    def _run(self, fix: Fix) -> None:
        with transact(self._db, CAUSE) as unit:
            fix(unit)

    def _with_others(self, before: datetime.datetime) -> Iterator[Finding]:
        """Compare with Placement and Nova host by host, to bound memory. They are asked outside
        the transaction."""
        if self._allocations is None and self._servers is None:
            return
        hostname = ''
        while True:
            with self._db.reader() as session:
                following = audit.next_host(session, hostname)
                if following is None:
                    return
                hostname = following
                servers = audit.providers_by_server(session, hostname, IN_USE, before)
                places = audit.servers_by_provider(session, hostname)
            yield from self._unjustified_requests(servers, before)
            yield from self._allocations_without_request(places)

    def _unjustified_requests(
        self, servers: dict[str, set[str]], before: datetime.datetime
    ) -> Iterator[Finding]:
        for server, providers in servers.items():
            if self._servers is not None and not self._servers.exists(server):
                yield Finding(
                    f'Server {server} has accelerator requests, but Nova does not know it.',
                    'delete its requests',
                    _delete_of(server, providers, before),
                )
                continue
            if self._allocations is None:
                continue
            lost = providers - self._allocations.providers_of(server)
            if lost:
                yield Finding(
                    f'Server {server} has accelerator requests on {", ".join(sorted(lost))}, '
                    f'but no allocation there in Placement.',
                    'delete its requests there',
                    _delete_of(server, lost, before),
                )

    def _allocations_without_request(self, places: dict[str, set[str]]) -> Iterator[Finding]:
        """Yields allocations on devices without a request: those of deleted servers, and of
        servers whose requests are lost, for instance because the database was restored.

        A server with a task of Nova in progress may have no request yet, so it is left out. Only
        Nova or an operator deletes allocations, so these findings have no fix.
        """
        if self._allocations is None or self._servers is None:
            return
        for provider, known in places.items():
            for server in sorted(self._allocations.other_servers_on(provider, known)):
                if self._servers.has_devices(server):
                    yield Finding(
                        f'Server {server} has an allocation on {provider} and no accelerator '
                        f'request; it may use a device that Cyborg considers free.',
                        f'openstack server shelve {server}, then unshelve it: it gets new devices',
                    )
                elif not self._servers.exists(server):
                    yield Finding(
                        f'Placement holds an allocation on {provider} for server {server}, which '
                        f'Nova does not know and which has no accelerator request.',
                        f'openstack resource provider allocation delete {server}, if the next '
                        f'audit finds it again',
                    )


def _handles(rows: audit.Rows) -> Iterator[Finding]:
    """Handles held by requests that should hold none."""
    for handle, arq_id, arq, state in rows:
        yield Finding(
            f'Handle {handle} is held by request {arq}, which is {state}.',
            'free the handle',
            _free(arq_id),
        )


def _requests(rows: audit.Rows) -> Iterator[Finding]:
    """Requests that should hold a handle and do not, or hold one of another provider."""
    for uuid, state, wanted, handle, held in rows:
        if handle is None:
            yield Finding(
                f'Request {uuid} is {state} without a handle.', 'unbind the request', _unbind(uuid)
            )
        else:  # its server may run with that handle
            yield Finding(
                f'Request {uuid} is bound to provider {wanted} and holds a handle of {held}.',
                'if the next audit finds it again, shelve and unshelve the server',
            )


def _unused(rows: audit.Rows) -> Iterator[Finding]:
    """Requests without a server. They only keep their profile from being deleted."""
    for uuid, state, moment in rows:
        yield Finding(
            f'Request {uuid} has no server and is {state} since {moment:%Y-%m-%d %H:%M} UTC.',
            'delete the request',
            _delete_unused(uuid),
        )


def _clean_ups(rows: audit.Rows) -> Iterator[Finding]:
    """Handles that hosts should have cleaned long ago."""
    for handle, hostname, attempts, error in rows:
        why = f'it failed {attempts} times: {error}' if error else 'its agent has not done it'
        yield Finding(
            f'Handle {handle} on {hostname} waits for its clean-up; {why}',
            f'repair the agent of {hostname}, or run cyborg-manage host forget',
        )


def _quarantined(rows: audit.Rows) -> Iterator[Finding]:
    """Handles that could not be cleaned."""
    for handle, hostname, error in rows:
        yield Finding(
            f'Handle {handle} on {hostname} is quarantined: {error}',
            f'repair the device, then run cyborg-manage handle clean {handle}, or cyborg-manage '
            f'handle release {handle} --reason TEXT to offer it without cleaning',
        )


def _programmings(rows: audit.Rows) -> Iterator[Finding]:
    """Images that hosts should have loaded long ago."""
    for uuid, image, hostname in rows:
        yield Finding(
            f'Deployable {uuid} on {hostname} waits for image {image}; it cannot be used '
            'until its agent reports the result.',
            f'repair the agent of {hostname}, or run cyborg-manage host forget',
        )


def _outbox(waiting: int, given_up: int) -> Iterator[Finding]:
    """Events that Nova should have accepted long ago."""
    if waiting:
        yield Finding(
            f'{waiting} events have not been accepted by Nova yet.',
            'see the log of the conductor for the reason',
        )
    if given_up:
        yield Finding(
            f'{given_up} events were given up: Nova refused them for too long, and may '
            'not know how binds ended.',
            'see the log of the conductor for the reason; then send them again',
            lambda unit: nova_events.resume(unit.session),
        )


# -- fixes; each reads the rows again, because they may have changed since --------------------


def _free(arq_id: int) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        rows = arqs_db.in_other_states(unit.session, arq_id, arq_states.HOLDING)
        arqs.let_go(unit, rows)

    return fix


def _unbind(uuid: str) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        rows = arqs_db.in_states(unit.session, uuid, arq_states.HOLDING)
        wrong = [row for row in rows if attach_handles.held_by(unit.session, row.id) is None]
        arqs.unbind_rows(unit, wrong, 'An audit found that it has no handle.')

    return fix


def _delete_unused(uuid: str) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        rows = arqs_db.in_states(unit.session, uuid, UNUSED)
        arqs.delete_rows(unit, rows, 'An audit found that it has no server.')

    return fix


def _delete_of(server: str, providers: set[str], before: datetime.datetime) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        # not those that it got since then, by an evacuation or an unshelve
        rows = arqs_db.of_server_since(unit.session, server, providers, IN_USE, before)
        arqs.delete_rows(unit, rows, 'An audit found that its server does not use it.')

    return fix
