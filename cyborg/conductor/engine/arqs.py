# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests: decides how they take handles and how they release them."""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oslo_log import log as logging

from cyborg import errors, metrics, objects
from cyborg.conductor.engine import matching, tasks
from cyborg.conductor.engine.limits import Allowance
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import arqs, attach_handles, clock, deployables, history, models
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.db.sqlalchemy.attach_handles import Wait
from cyborg.objects import TaskKind, arq_states
from cyborg.objects.arq_states import Event, State

Arq = models.ExtArq
Handle = models.AttachHandle
LOG = logging.getLogger(__name__)
#: why no handle can be taken yet
REFUSALS: dict[Wait, type[errors.Conflict]] = {
    Wait.UNDER_WAY: errors.HandleNotClean,
    Wait.OWED: errors.CleanUpOwed,
}


class ServersHold(Exception):
    """Servers already hold handles on the host to which more of their requests are bound. The
    caller must find out which of these servers run nowhere."""

    def __init__(self, servers: Collection[str]) -> None:
        super().__init__(f'{", ".join(servers)} hold handles already')
        self.servers = servers


@dataclass(frozen=True)
class Deadlines:
    """The times at which a bind that starts now counts as failed."""

    prepare: datetime.datetime
    program: datetime.datetime  #: if an image must be loaded


@dataclass
class Taken:
    """A request that has taken a handle."""

    arq: Arq
    binding: objects.Binding
    #: its host has to prepare the handle
    needs_prepare: bool
    #: of the device
    driver_name: str
    #: its host has to load an image first
    needs_program: bool = False

    @property
    def project_id(self) -> str | None:
        """The project for which the request is bound; another one may have created it."""
        return self.binding.project_id or self.arq.project_id

    @property
    def needs_host(self) -> bool:
        """Whether the host must perform a task before the request is Bound."""
        return self.needs_prepare or self.needs_program


# -- states ----------------------------------------------------------------------------------


def move(
    unit: UnitOfWork, rows: Sequence[Arq], event: Event, reason: str | None = None, **values: object
) -> None:
    """Move locked rows to the state that follows the event, and record the step: one
    compare-and-set.

    The step of a request that is unbound or deleted has its former host and provider, other steps
    have the new ones.
    """
    by_state: dict[str, list[Arq]] = {}
    for row in rows:
        by_state.setdefault(row.state, []).append(row)
    for before, group in by_state.items():
        after = arq_states.after(before, event, group[0].uuid)
        for row in group:
            unit.step(row, event, before, after, reason)
        arqs.write(unit.session, group, event, before, after, reason=reason, **values)


def create(
    unit: UnitOfWork,
    groups: Sequence[dict[str, str]],
    project_id: str | None,
    profile: models.DeviceProfile | None,
    allowance: Allowance,
) -> list[objects.Arq]:
    """Create one request for each unit that the groups ask for, in their order. Raises OverLimit if
    these are more than the project may have."""
    allowance.require(unit.session, project_id, sum(arqs.units(group) for group in groups))
    rows = arqs.insert(unit.session, groups, project_id, profile)
    for row in rows:
        unit.step(Arq(**row), Event.CREATE, None, State.INITIAL)
    unbound = arqs.NOWHERE | dict.fromkeys(
        ('attach_handle_type', 'attach_handle_uuid', 'reason', 'updated_at')
    )
    return [objects.Arq.of(row | unbound, attach_handle_info={}) for row in rows]


# -- bind ------------------------------------------------------------------------------------


def bind(
    unit: UnitOfWork,
    scope: arqs.Scope,
    bindings: Sequence[objects.Binding],
    deadlines: Deadlines,
    idle: Collection[str] | None = None,
) -> list[Arq]:
    """Give each request a handle of the provider that it names: all of them, or raise.

    The requests of a server become Bound together: here, or when the host has performed the last
    task for them. A request that is bound as asked stays as it is: clients repeat calls.

    Other requests of the same server are left from a failed attempt and are deleted. Handles that
    the server holds on the same host stay, because the server may use them, unless it is one of
    the ``idle`` servers, which run nowhere. Raises ServersHold if ``idle`` must be known.
    """
    wanted = {binding.arq_uuid: binding for binding in bindings}
    instances = {binding.instance_uuid for binding in bindings}
    rows = arqs.wanted(unit.session, wanted, instances)
    arqs.require_all([row for row in rows if scope.covers(row)], wanted)
    new = [row for row in rows if row.uuid in wanted and not _holds(row, wanted[row.uuid])]
    if new:
        if idle is None and (
            servers := {str(row.instance_uuid) for row in _held_here(rows, wanted)}
        ):
            raise ServersHold(sorted(servers))
        _delete_leftovers(unit, rows, wanted, idle or ())
        taken = _take(unit, new, wanted, scope.silent_since)
        unloaded = _unloaded(unit, taken)
        for instance in instances:
            _start(
                unit, [each for each in taken if each.binding.instance_uuid == instance], deadlines
            )
        # after the requests have the project for which they are bound: it must see the image
        for part, image, holders in unloaded:
            tasks.program(unit, part, image, holders[0], {arq.id for arq in holders})
    return [row for row in rows if row.uuid in wanted]


def note_refusal(
    unit: UnitOfWork, scope: arqs.Scope, bindings: Sequence[objects.Binding], why: str
) -> None:
    """Record in the history of requests why their bind was refused. A reason that is recorded
    already is not repeated, because clients repeat calls."""
    wanted = {binding.arq_uuid: binding for binding in bindings}
    rows = arqs.by_uuids(unit.session, scope, wanted)
    known = history.last_reasons(unit.session, [row.uuid for row in rows], Event.REFUSED)
    for row in rows:
        if known.get(row.uuid) != why:
            unit.step(row, Event.REFUSED, row.state, row.state, why, wanted[row.uuid])


def note_failed_load(unit: UnitOfWork, rows: Sequence[Arq], why: str) -> None:
    """Record in the history of requests why their image was not loaded. A reason that is recorded
    already is not repeated, because hosts try again without limit."""
    if not rows:
        return
    reason = f'Its image was not loaded: {why}'
    known = history.last_reasons(unit.session, [row.uuid for row in rows], Event.PROGRAM)
    for row in rows:
        if known.get(row.uuid) != reason:
            unit.step(row, Event.PROGRAM, row.state, row.state, reason)


def make_way(unit: UnitOfWork, bindings: Sequence[objects.Binding], idle: Collection[str]) -> None:
    """Delete the requests that failed attempts of these servers have left. Called after a bind was
    rolled back that needs their handles, which hosts must clean first."""
    rows = arqs.of_servers(unit.session, {binding.instance_uuid for binding in bindings})
    _delete_leftovers(unit, rows, {binding.arq_uuid: binding for binding in bindings}, idle)


def _held_here(rows: Sequence[Arq], wanted: Mapping[str, objects.Binding]) -> list[Arq]:
    """Returns other requests of these servers that hold handles on the hosts of the bind."""
    places = {(binding.instance_uuid, binding.hostname) for binding in wanted.values()}
    return [
        row
        for row in rows
        if row.uuid not in wanted
        and row.state in arq_states.HOLDING
        and (row.instance_uuid, row.hostname) in places
    ]


def _delete_leftovers(
    unit: UnitOfWork,
    rows: Sequence[Arq],
    wanted: Mapping[str, objects.Binding],
    idle: Collection[str],
) -> None:
    """Delete requests that failed binds of these servers have left."""
    kept = {row.uuid for row in _held_here(rows, wanted) if row.instance_uuid not in idle}
    delete_rows(
        unit,
        [row for row in rows if row.uuid not in wanted and row.uuid not in kept],
        'Left over from an earlier attempt: new requests of its server are bound.',
    )


def _holds(arq: Arq, binding: objects.Binding) -> bool:
    """Returns whether the request is bound as asked. Raises if it is bound elsewhere."""
    if arq.state not in arq_states.HOLDING:
        return False
    if (arq.hostname, arq.device_rp_uuid, arq.instance_uuid) != (
        binding.hostname,
        binding.device_rp_uuid,
        binding.instance_uuid,
    ):
        raise errors.ArqBoundElsewhere(uuid=arq.uuid, instance=arq.instance_uuid, host=arq.hostname)
    return True


def _take(
    unit: UnitOfWork,
    rows: Sequence[Arq],
    wanted: dict[str, objects.Binding],
    silent_since: datetime.datetime,
) -> list[Taken]:
    """Take a handle for each request, in the order of the locked rows."""
    offers = attach_handles.offers(unit.session, {wanted[arq.uuid].device_rp_uuid for arq in rows})
    taken = []
    for arq in rows:
        binding = wanted[arq.uuid]
        rp = binding.device_rp_uuid
        offer = offers.get(rp)
        if offer is None or offer.hostname != binding.hostname:
            raise errors.ProviderNotFound(host=binding.hostname, rp=rp)
        matching.require_honoured(f'Accelerator request {arq.uuid}', arq.group)
        matching.require_fit(arq, offer, rp)
        needs_prepare = offer.take(unit.session, arq.id)
        if needs_prepare is None:
            offers[rp] = _freed_meanwhile(unit, arq, binding, silent_since)
            matching.require_fit(arq, offers[rp], rp)
            needs_prepare = offers[rp].take(unit.session, arq.id)
        if needs_prepare is None:
            raise errors.NoFreeHandle(rp=rp, host=binding.hostname, uuid=arq.uuid)
        taken.append(Taken(arq, binding, needs_prepare, offers[rp].driver_name))
    return taken


def _freed_meanwhile(
    unit: UnitOfWork, arq: Arq, binding: objects.Binding, silent_since: datetime.datetime
) -> attach_handles.Offer:
    """Returns what a provider offers now; raises if its host still has tasks for it.

    A host may finish a task between two statements of this transaction. A handle that was not
    clean in the first statement is then free in the second, and may have lost its function.
    """
    rp = binding.device_rp_uuid
    refusal = REFUSALS.get(attach_handles.wait_for(unit.session, rp, silent_since))
    if refusal is not None:
        raise refusal(rp=rp, host=binding.hostname, uuid=arq.uuid)
    offer = attach_handles.offers(unit.session, {rp}).get(rp)
    if offer is None:  # the host was forgotten in between
        raise errors.NoFreeHandle(rp=rp, host=binding.hostname, uuid=arq.uuid)
    return offer


def _unloaded(
    unit: UnitOfWork, taken: Sequence[Taken]
) -> list[tuple[models.Deployable, dict[str, str], list[Arq]]]:
    """Returns the images that requests ask for and that are not loaded, each with its deployable
    and the requests that wait for it."""
    unloaded: list[tuple[models.Deployable, dict[str, str], list[Arq]]] = []
    if not any(tasks.image_of(each.arq.group) for each in taken):
        return unloaded
    for rp in sorted({each.binding.device_rp_uuid for each in taken}):
        here = [each for each in taken if each.binding.device_rp_uuid == rp]
        images = {
            tuple(sorted(image.items()))
            for each in here
            if (image := tasks.image_of(each.arq.group))
        }
        if not images:
            continue
        part = deployables.locked_provider(unit.session, rp)
        if (region := tasks.region_of(part)) is not None and region is not part:
            deployables.locked(unit.session, region.uuid)  # it has the image
        if len(images) > 1:
            raise errors.CannotProgram(
                uuid=part.uuid, why='requests of one bind ask for different images in it.'
            )
        image = dict(images.pop())
        if tasks.is_loaded(part, image, here[0].project_id):
            continue
        for each in here:
            each.needs_program = True
        unloaded.append((part, image, [each.arq for each in here]))
    return unloaded


def _start(unit: UnitOfWork, taken: Sequence[Taken], deadlines: Deadlines) -> None:
    """Write the new state of one server's requests, and create the tasks of its host."""
    waits = any(each.needs_host for each in taken)
    deadline = deadlines.program if any(each.needs_program for each in taken) else deadlines.prepare
    for each in taken:
        arq, binding, before = each.arq, each.binding, each.arq.state
        after = arq_states.after(before, Event.BIND, arq.uuid)
        if not waits:
            after = arq_states.after(after, Event.ATTACHED, arq.uuid)
        arqs.write(
            unit.session,
            [arq],
            Event.BIND,
            before,
            after,
            hostname=binding.hostname,
            device_rp_uuid=binding.device_rp_uuid,
            instance_uuid=binding.instance_uuid,
            project_id=each.project_id,
            reason=None,
            bind_deadline=deadline if waits else None,
        )
        unit.step(arq, Event.BIND, before, after)
        if each.needs_program:
            unit.step(
                arq,
                Event.PROGRAM,
                after,
                after,
                'Its host has to load {}.'.format(
                    ', '.join(f'{key} {value}' for key, value in tasks.image_of(arq.group).items())
                ),
            )
    if not waits:
        unit.announce((each.arq for each in taken), 'completed')
        unit.end_binds((each.driver_name for each in taken), metrics.OK)
        return
    prepare_held(
        unit, [each.arq for each in taken if each.needs_prepare and not each.needs_program]
    )


def prepare_held(unit: UnitOfWork, rows: Sequence[Arq], *, is_told: bool = True) -> None:
    """Create tasks that prepare the handles of requests."""
    if rows:
        prepared = [(row, handle) for row, handle in _held(unit, rows) if handle.is_host_prepared]
        tasks.prepare(unit, prepared, is_told=is_told)


def _held(unit: UnitOfWork, rows: Sequence[Arq]) -> list[tuple[Arq, Handle]]:
    """Returns the requests with the handles that they hold."""
    by_id = {row.id: row for row in rows}
    handles = attach_handles.held_by_any(unit.session, list(by_id))
    return [(by_id[handle.arq_id], handle) for handle in handles if handle.arq_id is not None]


# -- results of hosts ------------------------------------------------------------------------


def complete(unit: UnitOfWork, rows: Sequence[Arq], handles: Iterable[Handle]) -> None:
    """Make a server's requests Bound if no task is left for them. ``handles`` are their handles,
    with deployable and device."""
    held = {handle.arq_id: handle.deployable for handle in handles}
    # the image of a function is loaded into the region above it
    parts = {arq_id: (tasks.region_of(part) or part).uuid for arq_id, part in held.items()}
    opened = tasks_db.unfinished(unit.session, [row.uuid for row in rows], set(parts.values()))
    unprepared = {task.arq_uuid for task in opened if task.kind == TaskKind.PREPARE}
    programmed = {task.deployable_uuid for task in opened if task.kind == TaskKind.PROGRAM}
    is_done = {
        row.uuid: row.uuid not in unprepared and parts.get(row.id) not in programmed for row in rows
    }
    starting = [row for row in rows if row.state == State.BIND_STARTED]
    if not all(is_done[row.uuid] for row in starting):
        starting = []
    unit.end_binds(
        (held[row.id].device.driver_name for row in starting if row.id in held), metrics.OK
    )
    ready = starting + [
        row for row in rows if row.state == State.PROVISIONING and is_done[row.uuid]
    ]
    move(unit, ready, Event.ATTACHED, bind_deadline=None)
    unit.announce(ready, 'completed')


def fail(unit: UnitOfWork, rows: Sequence[Arq], why: str) -> None:
    """Fail the bind of a server's requests and release their handles. They can be bound again."""
    starting = [row for row in rows if row.state == State.BIND_STARTED]
    if starting:
        held = let_go(unit, starting)
        unit.end_binds((each.deployable.device.driver_name for each in held), metrics.FAILED)
        move(unit, starting, Event.FAILED, why, bind_deadline=None)
        unit.announce(starting, 'failed')


def by_server(unit: UnitOfWork, uuids: Collection[str]) -> list[list[Arq]]:
    """Returns all requests of the servers of these requests, locked, by server. The transaction
    that finishes the last task must see the other tasks finished."""
    servers = sorted(arqs.servers_of(unit.session, uuids))
    rows = arqs.of_servers(unit.session, servers)
    return [[row for row in rows if row.instance_uuid == each] for each in servers]


def fail_overdue(unit: UnitOfWork) -> None:
    """Fail the binds whose deadline has passed."""
    now = clock.now()
    for rows in by_server(unit, arqs.overdue(unit.session)):
        # one may have been unbound and bound again before it was locked
        late = [row for row in rows if row.bind_deadline is not None and row.bind_deadline < now]
        if not late:
            continue
        error = tasks_db.last_error(unit.session, [row.uuid for row in late])
        why = f' Its last attempt failed: {error}' if error else ''
        fail(unit, late, f'Host {late[0].hostname} did not prepare the device in time.{why}')
        _complete_rest(unit, [rows], late)


# -- unbind and delete -----------------------------------------------------------------------


def unbind(unit: UnitOfWork, scope: arqs.Scope, uuids: Collection[str]) -> None:
    """Unbind requests; one that is unbound already stays so."""
    rows = arqs.by_uuids(unit.session, scope, uuids)
    arqs.require_all(rows, uuids)
    servers = _servers_that_wait(unit, rows)
    unbind_rows(unit, rows)
    _complete_rest(unit, servers, rows)


def unbind_rows(unit: UnitOfWork, rows: Sequence[Arq], reason: str | None = None) -> None:
    """Unbind locked rows."""
    rows = [row for row in rows if row.state != State.UNBOUND]
    let_go(unit, rows)
    move(unit, rows, Event.UNBIND, reason, **arqs.NOWHERE)


def delete(
    unit: UnitOfWork, scope: arqs.Scope, uuids: Collection[str], *, even_bound: bool
) -> list[str]:
    """Delete the requests that exist; returns the uuids of those that do not."""
    rows = arqs.by_uuids(unit.session, scope, uuids)
    if not even_bound and any(row.instance_uuid and row.state != State.BIND_FAILED for row in rows):
        raise errors.ServiceTokenRequired(action='Deleting a bound accelerator request')
    servers = _servers_that_wait(unit, rows)
    delete_rows(unit, rows)
    _complete_rest(unit, servers, rows)
    return sorted(set(uuids) - {row.uuid for row in rows})


def _servers_that_wait(unit: UnitOfWork, rows: Sequence[Arq]) -> list[list[Arq]]:
    """Returns all requests of servers whose bind is in progress, by server, for those of ``rows``
    that take part in it."""
    starting = [row.uuid for row in rows if row.state == State.BIND_STARTED]
    return by_server(unit, starting) if starting else []


def _complete_rest(
    unit: UnitOfWork, servers: Iterable[Sequence[Arq]], ended: Collection[Arq]
) -> None:
    """Make the other requests of servers Bound if they only waited for those that have ended."""
    for rows in servers:
        rest = [row for row in rows if row not in ended and row.state == State.BIND_STARTED]
        if rest:
            unit.session.flush()
            handles = attach_handles.held_by_any(unit.session, [row.id for row in rest])
            complete(unit, rest, handles)


def delete_of_instance(unit: UnitOfWork, instance_uuid: str, hostname: str | None = None) -> int:
    """Delete all requests of a server, on one host or on all; returns their number.

    Only services call this, when the server is deleted: requests of every project are included.
    """
    rows = arqs.of_instance(unit.session, instance_uuid, hostname)
    delete_rows(unit, rows)
    return len(rows)


def delete_abandoned(unit: UnitOfWork, lifetime: datetime.timedelta) -> int:
    """Delete some requests that are older than this and were never bound; returns how many. Their
    client no longer exists, and they keep their profile from being deleted."""
    rows = arqs.abandoned(unit.session, lifetime)
    delete_rows(
        unit, rows, f'Its client did not bind it within {lifetime.total_seconds():.0f} seconds.'
    )
    return len(rows)


def delete_rows(unit: UnitOfWork, rows: Sequence[Arq], reason: str | None = None) -> None:
    """Delete locked rows."""
    let_go(unit, rows)
    for row in rows:
        after = arq_states.after(row.state, Event.DELETE, row.uuid)
        unit.step(row, Event.DELETE, row.state, after, reason)
    if rows:
        arqs.delete(unit.session, rows)


def let_go(unit: UnitOfWork, rows: Sequence[Arq]) -> list[Handle]:
    """Release the handles of these requests; a host that must clean them does so first. Returns
    the handles."""
    if not rows:
        return []
    unprepared = [row.uuid for row in rows if row.state in arq_states.UNFINISHED]
    if unprepared:
        tasks_db.remove_prepares(unit.session, unprepared)
    if held := _held(unit, rows):
        tasks.hand_back(unit, held)
    return [handle for _, handle in held]
