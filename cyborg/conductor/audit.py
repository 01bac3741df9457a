# SPDX-License-Identifier: Apache-2.0
"""Compares what should agree: requests, handles, Placement's allocations, Nova's servers.

Every disagreement is told with its remedy. Whatever is in the middle of something is left out,
so that an audit is safe at any time; what it fixes, it fixes by the engine's own steps.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from cyborg import errors
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import UnitOfWork, transact
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import attach_handles, audit, engine, models, nova_events
from cyborg.db.sqlalchemy.history import Cause
from cyborg.objects import arq_states
from cyborg.objects.arq_states import State

CAUSE = Cause('audit')
#: younger than this, two services may simply not have told one another yet
GRACE = datetime.timedelta(minutes=10)
#: whoever made a request and has not bound it by then has forgotten it, or died
LONG_UNUSED = datetime.timedelta(days=1)

#: said so, since a database does not look up in an index what something is not
NOT_HOLDING = tuple(state for state in State if state not in arq_states.HOLDING)
UNUSED = (State.INITIAL, State.BIND_FAILED)

Fix = Callable[[UnitOfWork], None]


@dataclass(frozen=True)
class Finding:
    """Two that do not agree."""

    what: str  #: one sentence
    remedy: str  #: what fixes it: the audit itself, or somebody
    fix: Fix | None = None


class Allocations(Protocol):
    """Placement's view, as far as an audit needs it."""

    def providers_of(self, consumer: str) -> set[str]:
        """The providers on which a server holds something."""

    def other_servers_on(self, provider: str, servers: set[str]) -> set[str]:
        """Who but these servers holds something of a provider."""


class Servers(Protocol):
    """Nova's view, as far as an audit needs it."""

    def exists(self, server: str) -> bool:
        """Does Nova know it?"""


class Audit:
    """Looks, and mends on demand. Neighbours that cannot be asked are left out."""

    def __init__(self, db: engine.Database, allocations: Allocations | None = None,
                 servers: Servers | None = None, grace: datetime.timedelta = GRACE) -> None:
        self._db = db
        self._allocations = allocations
        self._servers = servers
        self._grace = grace

    def look(self) -> list[Finding]:
        """All disagreements."""
        with self._db.reader() as session:
            before = models.now() - self._grace
            findings = [
                *_handles(audit.handles_held_in(session, NOT_HOLDING)),
                *_requests(audit.wrongly_holding(session, arq_states.HOLDING)),
                *_unused(audit.unchanged(session, UNUSED, models.now() - LONG_UNUSED)),
                *_clean_ups(audit.waiting_for_clean_up(session, before)),
                *_quarantined(audit.quarantined(session)),
                *_programmings(audit.waiting_for_image(session, before)),
                *_outbox(audit.count_waiting_events(session, before),
                         nova_events.given_up(session))]
        try:
            findings.extend(self._with_others(before))
        except errors.Unavailable as error:
            findings.append(Finding(f'Not all could be compared: {error.faultstring}',
                                    'run the audit again when everybody answers'))
        return findings

    def mend(self, findings: Iterable[Finding]) -> int:
        """Fix what can be fixed, each in a transaction of its own; answers how many."""
        fixed = 0
        for finding in findings:
            if finding.fix is not None:
                with transact(self._db, CAUSE) as unit:
                    finding.fix(unit)
                fixed += 1
        return fixed

    def _with_others(self, before: datetime.datetime) -> Iterator[Finding]:
        """Compare with Placement and Nova host by host: the requests of all need not fit into
        memory. Others are asked outside the transaction."""
        if self._allocations is None and self._servers is None:
            return
        hostname = ''
        while True:
            with self._db.reader() as session:
                following = audit.next_host(session, hostname)
                if following is None:
                    return
                hostname = following
                servers = audit.providers_by_server(session, hostname, State.BOUND, before)
                places = audit.servers_by_provider(session, hostname)
            yield from self._neighbours(servers, before)
            yield from self._leaks(places)

    def _neighbours(self, servers: dict[str, set[str]],
                    before: datetime.datetime) -> Iterator[Finding]:
        for server, providers in servers.items():
            if self._servers is not None and not self._servers.exists(server):
                yield Finding(f'Nova knows no server {server}, yet it has accelerator requests.',
                              'delete its requests', _delete_of(server, providers, before))
                continue
            if self._allocations is None:
                continue
            lost = providers - self._allocations.providers_of(server)
            if lost:
                yield Finding(
                    f'Server {server} has accelerator requests on {", ".join(sorted(lost))}, '
                    f'where Placement has no allocation of it.',
                    'delete its requests there', _delete_of(server, lost, before))

    def _leaks(self, places: dict[str, set[str]]) -> Iterator[Finding]:
        """Allocations that keep others from a device, and whose server is no more.

        A server that Nova knows may have no request yet. That an allocation goes is Nova's
        business.
        """
        if self._allocations is None or self._servers is None:
            return
        for provider, known in places.items():
            for server in sorted(self._allocations.other_servers_on(provider, known)):
                if not self._servers.exists(server):
                    yield Finding(
                        f'Placement holds an allocation on {provider} for server {server}, which '
                        f'Nova does not know and which has no accelerator request.',
                        f'openstack resource provider allocation delete {server}, if it is '
                        f'still there when the audit is run again')


def _handles(rows: audit.Rows) -> Iterator[Finding]:
    """Handles held by requests that should hold none."""
    for handle, arq_id, arq, state in rows:
        yield Finding(f'Handle {handle} is held by request {arq}, which is {state}.',
                      'free the handle', _free(arq_id))


def _requests(rows: audit.Rows) -> Iterator[Finding]:
    """Requests that should hold a handle and do not, or hold one of another provider."""
    for uuid, state, wanted, handle, held in rows:
        if handle is None:
            yield Finding(f'Request {uuid} is {state} without a handle.', 'unbind the request',
                          _unbind(uuid))
        else:  # its server may run with that handle
            yield Finding(
                f'Request {uuid} is bound to provider {wanted} and holds a handle of {held}.',
                'if it is still told when the audit is run again, shelve and unshelve the server')


def _unused(rows: audit.Rows) -> Iterator[Finding]:
    """Requests that are no server's. They hold nothing but their profile."""
    for uuid, state, moment in rows:
        yield Finding(f'Request {uuid} is {state} since {moment:%Y-%m-%d %H:%M} UTC, and no '
                      f"server's.", 'delete the request', _delete_unused(uuid))


def _clean_ups(rows: audit.Rows) -> Iterator[Finding]:
    """Handles that hosts should have cleaned long ago."""
    for handle, hostname, attempts, error in rows:
        why = f'it failed {attempts} times: {error}' if error else 'its agent has not done it'
        yield Finding(f'Handle {handle} on {hostname} waits for its clean-up; {why}',
                      f'see to the agent of {hostname}, or cyborg-manage host forget')


def _quarantined(rows: audit.Rows) -> Iterator[Finding]:
    """Handles that could not be cleaned."""
    for handle, hostname, error in rows:
        yield Finding(f'Handle {handle} on {hostname} is quarantined: {error}',
                      f'see to it, then cyborg-manage handle clean {handle}, or cyborg-manage '
                      f'handle release {handle} to give it out as it is')


def _programmings(rows: audit.Rows) -> Iterator[Finding]:
    """Images that hosts should have loaded long ago."""
    for uuid, image, hostname in rows:
        yield Finding(f'Deployable {uuid} on {hostname} waits for image {image}; until its '
                      'agent says how loading that ended, nobody can have it.',
                      f'see to the agent of {hostname}, or cyborg-manage host forget')


def _outbox(waiting: int, given_up: int) -> Iterator[Finding]:
    """Events that Nova should have heard long ago."""
    if waiting:
        yield Finding(f'{waiting} events wait for Nova to take them.',
                      'see why Nova refuses them: the conductor log tells')
    if given_up:
        yield Finding(f'{given_up} events were given up: Nova refused them for too long, and may '
                      'not know how binds ended.',
                      'see why Nova refuses them, which the conductor log tells; then send them '
                      'again', lambda unit: nova_events.resume(unit.session))


# -- remedies; each looks again, for a moment has passed ---------------------------------------


def _free(arq_id: int) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        rows = arqs_db.in_other_states(unit.session, arq_id, arq_states.HOLDING)
        arqs.let_go(unit, rows)
    return fix


def _unbind(uuid: str) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        rows = arqs_db.in_states(unit.session, uuid, arq_states.HOLDING)
        wrong = [row for row in rows
                 if attach_handles.held_by(unit.session, row.id) is None]
        arqs.unbind_rows(unit, wrong, 'The audit found it without its handle.')
    return fix


def _delete_unused(uuid: str) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        rows = arqs_db.in_states(unit.session, uuid, UNUSED)
        arqs.delete_rows(unit, rows, 'The audit found that nobody uses it.')
    return fix


def _delete_of(server: str, providers: set[str], before: datetime.datetime) -> Fix:
    def fix(unit: UnitOfWork) -> None:
        # not those that it was given meanwhile, by an evacuation or when it was unshelved
        rows = arqs_db.of_server_since(unit.session, server, providers, State.BOUND, before)
        arqs.delete_rows(unit, rows, 'The audit found its server gone.')
    return fix
