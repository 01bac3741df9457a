# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests: how they come to hold a handle, and how they let go of it."""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cyborg import errors, objects
from cyborg.conductor.engine import matching, tasks
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import arqs, attach_handles, deployables, models
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.db.sqlalchemy.attach_handles import Wait
from cyborg.objects import TaskKind, arq_states
from cyborg.objects.arq_states import Event, State

Arq, Handle = models.ExtArq, models.AttachHandle
#: why there is nothing to take yet
REFUSALS: dict[Wait, type[errors.Conflict]] = {
    Wait.UNDER_WAY: errors.HandleNotClean, Wait.OWED: errors.CleanUpOwed}


class ServersHold(Exception):
    """Servers hold something on the host to which further requests of theirs are bound; the
    caller has to find out which of them run nowhere."""

    def __init__(self, servers: Collection[str]) -> None:
        super().__init__(f'{", ".join(servers)} hold something already')
        self.servers = servers


@dataclass(frozen=True)
class Deadlines:
    """When a bind that starts now has failed."""

    prepare: datetime.datetime
    program: datetime.datetime  #: if an image must be loaded


@dataclass
class Taken:
    """A request that has got a handle."""

    arq: Arq
    binding: objects.Binding
    #: its host has to prepare the handle
    needs_prepare: bool
    #: its host has to load an image first
    needs_program: bool = False

    @property
    def needs_host(self) -> bool:
        """Has the host something to do before the request is Bound?"""
        return self.needs_prepare or self.needs_program


# -- states ----------------------------------------------------------------------------------


def move(unit: UnitOfWork, rows: Sequence[Arq], event: Event, reason: str | None = None,
         **values: object) -> None:
    """Take locked rows to the state that follows, and note the step: one compare-and-set.

    The step tells where a request was when it is taken away, and where it is otherwise.
    """
    by_state: dict[str, list[Arq]] = {}
    for row in rows:
        by_state.setdefault(row.state, []).append(row)
    for before, group in by_state.items():
        after = arq_states.after(before, event, group[0].uuid)
        for row in group:
            unit.step(row, event, before, after, reason)
        arqs.write(unit.session, group, before, after, reason=reason, **values)


def create(unit: UnitOfWork, groups: Sequence[dict[str, str]], project_id: str | None,
           profile: models.DeviceProfile | None) -> list[objects.Arq]:
    """One request per unit that the groups ask for, in their order."""
    rows = arqs.insert(unit.session, groups, project_id, profile.id if profile else None)
    for row in rows:
        unit.step(Arq(**row), Event.CREATE, None, State.INITIAL)
    unbound = arqs.NOWHERE | dict.fromkeys(
        ('attach_handle_type', 'attach_handle_uuid', 'reason', 'updated_at'))
    name = profile.name if profile else None
    return [objects.Arq.of(row | unbound, attach_handle_info={}, device_profile_name=name)
            for row in rows]


# -- bind ------------------------------------------------------------------------------------


def bind(unit: UnitOfWork, scope: arqs.Scope, bindings: Sequence[objects.Binding],
         deadlines: Deadlines, idle: Collection[str] | None = None) -> list[Arq]:
    """Give each request a handle of the provider it names: all of them, or an error.

    The requests of a server become Bound together: here, or when the host has done its last task
    for them. A binding that holds already is left as it is, for clients repeat themselves.

    Other requests of the same server are left from a failed attempt and go. What the server holds
    on the same host stays, since the server may be using it, unless it is among those that are
    ``idle``: they run nowhere. Without that ServersHold is raised if it matters.
    """
    wanted = {binding.arq_uuid: binding for binding in bindings}
    instances = {binding.instance_uuid for binding in bindings}
    rows = arqs.wanted(unit.session, wanted, instances)
    arqs.require_all([row for row in rows if scope.covers(row)], wanted)
    new = [row for row in rows if row.uuid in wanted and not _holds(row, wanted[row.uuid])]
    if new:
        if idle is None and (servers := {str(row.instance_uuid) for row in _held_here(
                rows, wanted)}):
            raise ServersHold(sorted(servers))
        _delete_leftovers(unit, rows, wanted, idle or ())
        taken = _take(unit, new, wanted, scope.silent_since)
        _program(unit, taken)
        for instance in instances:
            _start(unit, [each for each in taken if each.binding.instance_uuid == instance],
                   deadlines)
    return [row for row in rows if row.uuid in wanted]


def make_way(unit: UnitOfWork, bindings: Sequence[objects.Binding],
             idle: Collection[str]) -> None:
    """Delete a server's requests of a failed attempt, though the bind had to be undone: what they
    hold must be cleaned before it can be had again."""
    rows = arqs.of_servers(unit.session, {binding.instance_uuid for binding in bindings})
    _delete_leftovers(unit, rows, {binding.arq_uuid: binding for binding in bindings}, idle)


def _held_here(rows: Sequence[Arq], wanted: Mapping[str, objects.Binding]) -> list[Arq]:
    """Further requests of these servers that hold something on the hosts they are bound to."""
    places = {(binding.instance_uuid, binding.hostname) for binding in wanted.values()}
    return [row for row in rows if row.uuid not in wanted and row.state in arq_states.HOLDING
            and (row.instance_uuid, row.hostname) in places]


def _delete_leftovers(unit: UnitOfWork, rows: Sequence[Arq],
                      wanted: Mapping[str, objects.Binding], idle: Collection[str]) -> None:
    """Delete what failed attempts to bind something to these servers have left."""
    kept = {row.uuid for row in _held_here(rows, wanted) if row.instance_uuid not in idle}
    delete_rows(
        unit, [row for row in rows if row.uuid not in wanted and row.uuid not in kept],
        'Left from an earlier attempt: its server is bound anew.')


def _holds(arq: Arq, binding: objects.Binding) -> bool:
    """Is the request where it should go? Elsewhere is a conflict."""
    if arq.state not in arq_states.HOLDING:
        return False
    if (arq.hostname, arq.device_rp_uuid, arq.instance_uuid) != (
            binding.hostname, binding.device_rp_uuid, binding.instance_uuid):
        raise errors.ArqBoundElsewhere(uuid=arq.uuid, instance=arq.instance_uuid,
                                       host=arq.hostname)
    return True


def _take(unit: UnitOfWork, rows: Sequence[Arq], wanted: dict[str, objects.Binding],
          silent_since: datetime.datetime) -> list[Taken]:
    """A handle for each, in the order in which everybody tries."""
    offers = attach_handles.offers(
        unit.session, {wanted[arq.uuid].device_rp_uuid for arq in rows})
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
            needs_prepare = offers[rp].take(unit.session, arq.id)
        if needs_prepare is None:
            raise errors.NoFreeHandle(rp=rp, host=binding.hostname, uuid=arq.uuid)
        taken.append(Taken(arq, binding, needs_prepare))
    return taken


def _freed_meanwhile(unit: UnitOfWork, arq: Arq, binding: objects.Binding,
                     silent_since: datetime.datetime) -> attach_handles.Offer:
    """What a provider offers after all; an error if its host has yet to do something for it.

    A host may finish a task between two statements of ours: what it had not cleaned when we
    looked for a handle is free when we ask what it has to clean.
    """
    rp = binding.device_rp_uuid
    refusal = REFUSALS.get(attach_handles.wait_for(unit.session, rp, silent_since))
    if refusal is not None:
        raise refusal(rp=rp, host=binding.hostname, uuid=arq.uuid)
    offer = attach_handles.offers(unit.session, {rp}).get(rp)
    if offer is None:  # the host was forgotten meanwhile
        raise errors.NoFreeHandle(rp=rp, host=binding.hostname, uuid=arq.uuid)
    return offer


def _program(unit: UnitOfWork, taken: Sequence[Taken]) -> None:
    """Have hosts load the images that requests ask for, where they are not loaded already."""
    if not any(tasks.image_of(each.arq.group) for each in taken):
        return
    for rp in sorted({each.binding.device_rp_uuid for each in taken}):
        here = [each for each in taken if each.binding.device_rp_uuid == rp]
        images = {tuple(sorted(image.items())) for each in here
                  if (image := tasks.image_of(each.arq.group))}
        if not images:
            continue
        part = deployables.locked_provider(unit.session, rp)
        if len(images) > 1:
            raise errors.CannotProgram(
                uuid=part.uuid, why='requests of one bind ask for different images in it.')
        image = dict(images.pop())
        if tasks.is_loaded(part, image, here[0].arq.project_id):
            continue
        for each in here:
            each.needs_program = True
        tasks.program(unit, part, image, here[0].arq, {each.arq.id for each in here})


def _start(unit: UnitOfWork, taken: Sequence[Taken], deadlines: Deadlines) -> None:
    """Write the new state of one server's requests, and give its host what it has to do."""
    waits = any(each.needs_host for each in taken)
    deadline = (deadlines.program if any(each.needs_program for each in taken)
                else deadlines.prepare)
    for each in taken:
        arq, binding, before = each.arq, each.binding, each.arq.state
        after = arq_states.after(before, Event.BIND, arq.uuid)
        if not waits:
            after = arq_states.after(after, Event.ATTACHED, arq.uuid)
        arqs.write(
            unit.session, [arq], before, after, hostname=binding.hostname,
            device_rp_uuid=binding.device_rp_uuid, instance_uuid=binding.instance_uuid,
            project_id=binding.project_id or arq.project_id, reason=None,
            bind_deadline=deadline if waits else None)
        unit.step(arq, Event.BIND, before, after)
        if each.needs_program:
            unit.step(arq, Event.PROGRAM, after, after, 'Its host has to load {}.'.format(
                ', '.join(f'{key} {value}' for key, value in tasks.image_of(arq.group).items())))
    if not waits:
        unit.announce((each.arq for each in taken), 'completed')
        return
    prepare_held(unit, [each.arq for each in taken
                        if each.needs_prepare and not each.needs_program])


def prepare_held(unit: UnitOfWork, rows: Sequence[Arq], *, is_told: bool = True) -> None:
    """Have the host prepare what requests hold."""
    if rows:
        by_id = {row.id: row for row in rows}
        tasks.prepare(unit, [(by_id[handle.arq_id], handle) for handle in
                             attach_handles.held_by_any(unit.session, list(by_id))
                             if handle.is_host_prepared], is_told=is_told)


# -- what hosts did --------------------------------------------------------------------------


def complete(unit: UnitOfWork, rows: Sequence[Arq], handles: Iterable[Handle]) -> None:
    """Let a server's requests become Bound once nothing is to be done for them. ``handles``: what
    they hold, with where it is."""
    parts = {handle.arq_id: handle.deployable.uuid for handle in handles}
    opened = tasks_db.unfinished(unit.session, [row.uuid for row in rows], set(parts.values()))
    unprepared = {task.arq_uuid for task in opened if task.kind == TaskKind.PREPARE}
    programmed = {task.deployable_uuid for task in opened if task.kind == TaskKind.PROGRAM}
    is_done = {row.uuid: row.uuid not in unprepared and parts.get(row.id) not in programmed
               for row in rows}
    starting = [row for row in rows if row.state == State.BIND_STARTED]
    if not all(is_done[row.uuid] for row in starting):
        starting = []
    ready = starting + [row for row in rows
                        if row.state == State.PROVISIONING and is_done[row.uuid]]
    move(unit, ready, Event.ATTACHED, bind_deadline=None)
    unit.announce(ready, 'completed')


def fail(unit: UnitOfWork, rows: Sequence[Arq], why: str) -> None:
    """The bind of a server's requests has failed: nothing is held, a new bind may come."""
    starting = [row for row in rows if row.state == State.BIND_STARTED]
    if starting:
        let_go(unit, starting)
        move(unit, starting, Event.FAILED, why, bind_deadline=None)
        unit.announce(starting, 'failed')


def by_server(unit: UnitOfWork, uuids: Collection[str]) -> list[list[Arq]]:
    """All requests of the servers that these belong to, by server and locked: whoever finishes
    the last task must see the others finished."""
    servers = sorted(arqs.servers_of(unit.session, uuids))
    rows = arqs.of_servers(unit.session, servers)
    return [[row for row in rows if row.instance_uuid == each] for each in servers]


def fail_overdue(unit: UnitOfWork) -> None:
    """Binds whose deadline has passed have failed."""
    for rows in by_server(unit, arqs.overdue(unit.session)):
        fail(unit, rows, f'Host {next((row.hostname for row in rows), "")} did not prepare the '
                         f'device in time.')


def prepare_again(unit: UnitOfWork, rows: Sequence[Arq]) -> None:
    """Ask the host anew for what it had prepared. A bind that is under way goes on waiting."""
    if not rows:
        return
    opened = {task.arq_uuid for task in tasks_db.unfinished(
        unit.session, [row.uuid for row in rows], ())}
    rows = [row for row in rows if row.uuid not in opened]
    move(unit, [row for row in rows if row.state == State.BOUND], Event.PROVISION)
    prepare_held(unit, rows, is_told=False)


def program_again(unit: UnitOfWork, parts: Sequence[models.Deployable]) -> None:
    """Have a host load anew what these deployables have lost, and what requests hold them for."""
    for part in parts:
        held = [handle.arq_id for handle in part.attach_handles if handle.arq_id is not None]
        rows = arqs.by_ids(unit.session, held)
        asking = [row for row in rows if tasks.image_of(row.group)]
        if not asking or tasks.is_loaded(
                part, tasks.image_of(asking[0].group), asking[0].project_id):
            continue
        if tasks_db.programming_of(unit.session, [part.uuid]):
            continue
        tasks.program(unit, part, tasks.image_of(asking[0].group), asking[0],
                      {row.id for row in rows})
        move(unit, [row for row in rows if row.state == State.BOUND], Event.PROVISION)


# -- let go ----------------------------------------------------------------------------------


def unbind(unit: UnitOfWork, scope: arqs.Scope, uuids: Collection[str]) -> None:
    """Unbound now; what is so already stays so."""
    rows = arqs.by_uuids(unit.session, scope, uuids)
    arqs.require_all(rows, uuids)
    unbind_rows(unit, rows)


def unbind_rows(unit: UnitOfWork, rows: Sequence[Arq], reason: str | None = None) -> None:
    """Unbind locked rows."""
    rows = [row for row in rows if row.state != State.UNBOUND]
    let_go(unit, rows)
    move(unit, rows, Event.UNBIND, reason, **arqs.NOWHERE)


def delete(unit: UnitOfWork, scope: arqs.Scope, uuids: Collection[str], *,
           even_bound: bool) -> list[str]:
    """Delete those that exist; returns those that do not."""
    rows = arqs.by_uuids(unit.session, scope, uuids)
    if not even_bound and any(
            row.instance_uuid and row.state != State.BIND_FAILED for row in rows):
        raise errors.ServiceTokenRequired(action='Deleting a bound accelerator request')
    delete_rows(unit, rows)
    return sorted(set(uuids) - {row.uuid for row in rows})


def delete_of_instance(unit: UnitOfWork, instance_uuid: str,
                       hostname: str | None = None) -> int:
    """Delete a server's requests, on one host or wherever; returns how many there were.

    Only services do this, when the server goes: nothing of it may stay, whosever it is.
    """
    rows = arqs.of_instance(unit.session, instance_uuid, hostname)
    delete_rows(unit, rows)
    return len(rows)


def delete_abandoned(unit: UnitOfWork, lifetime: datetime.timedelta) -> int:
    """Delete requests that are older than this and were never bound, some at a time; returns
    how many. The client that made them is gone, and they keep their profile from being deleted.
    """
    rows = arqs.abandoned(unit.session, lifetime)
    delete_rows(unit, rows,
                f'Its client did not bind it within {lifetime.total_seconds():.0f} seconds.')
    return len(rows)


def delete_rows(unit: UnitOfWork, rows: Sequence[Arq], reason: str | None = None) -> None:
    """Delete locked rows."""
    let_go(unit, rows)
    for row in rows:
        after = arq_states.after(row.state, Event.DELETE, row.uuid)
        unit.step(row, Event.DELETE, row.state, after, reason)
    if rows:
        arqs.delete(unit.session, rows)


def let_go(unit: UnitOfWork, rows: Sequence[Arq]) -> None:
    """Free the handles of these requests, or have their host release and clean them first."""
    if not rows:
        return
    unprepared = [row.uuid for row in rows if row.state in arq_states.UNFINISHED]
    if unprepared:
        tasks_db.remove_prepares(unit.session, unprepared)
    by_id = {row.id: row for row in rows}
    handles = attach_handles.held_by_any(unit.session, list(by_id))
    if handles:
        tasks.hand_back(unit, [(by_id[handle.arq_id], handle) for handle in handles])
