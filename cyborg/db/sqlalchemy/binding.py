# SPDX-License-Identifier: Apache-2.0
"""How a request comes to hold a handle: bind, what the host does for it, and how that ends."""

import datetime
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import arqs, attach_handles, matching, models, releasing
from cyborg.db.sqlalchemy.attach_handles import CleanUp
from cyborg.db.sqlalchemy.ledger import Ledger
from cyborg.objects import arq_states
from cyborg.objects.arq_states import Event, State

Arq, Handle = models.ExtArq, models.AttachHandle
#: where each goes, and whether the host prepares it there
Taken = list[tuple[Arq, objects.Binding, bool]]
#: why there is nothing to take yet
REFUSALS: dict[CleanUp, type[errors.Conflict]] = {
    CleanUp.UNDER_WAY: errors.HandleNotClean, CleanUp.OWED: errors.CleanUpOwed}

#: the host has done its part, also where a bind still waits for others of the same server
IS_PREPARED = sa.or_(Arq.state == State.BOUND,
                     sa.and_(Arq.state == State.BIND_STARTED, Arq.is_prepared))
_WANTED = arqs.locking(sa.or_(Arq.uuid.in_(models.any_of('uuids')),
                              Arq.instance_uuid.in_(models.any_of('instances'))))


class ServersHold(Exception):
    """Servers hold something on the host to which further requests of theirs are bound; the
    caller has to find out which of them run nowhere."""

    def __init__(self, servers: Collection[str]) -> None:
        super().__init__(f'{", ".join(servers)} hold something already')
        self.servers = servers


def bind(ledger: Ledger, scope: arqs.Scope, bindings: Sequence[objects.Binding],
         deadline: datetime.datetime, idle: Collection[str] | None = None) -> list[Arq]:
    """Give each request a handle of the provider it names: all of them, or an error.

    The requests of a server become Bound together: here, or when the host has prepared the
    last of them. A binding that holds already is left as it is, for clients repeat themselves.

    Other requests of the same server are left from a failed attempt and go. What the server holds
    on the same host stays, since the server may be using it, unless it is among those that are
    ``idle``: they run nowhere. Without that ServersHold is raised if it matters.
    """
    wanted = {binding.arq_uuid: binding for binding in bindings}
    instances = {binding.instance_uuid for binding in bindings}
    rows = list(ledger.session.scalars(_WANTED, {'uuids': list(wanted),
                                                 'instances': list(instances)}))
    arqs.require_all([row for row in rows if scope.covers(row)], wanted)
    new = [row for row in rows if row.uuid in wanted and not _holds(row, wanted[row.uuid])]
    if new:
        if idle is None and (servers := {str(row.instance_uuid) for row in _held_here(
                rows, wanted)}):
            raise ServersHold(sorted(servers))
        _delete_leftovers(ledger, rows, wanted, idle or ())
        taken = _take(ledger.session, new, wanted, scope.silent_since)
        for instance in instances:
            _start(ledger, [each for each in taken if each[1].instance_uuid == instance],
                   deadline)
    return [row for row in rows if row.uuid in wanted]


def make_way(ledger: Ledger, bindings: Sequence[objects.Binding],
             idle: Collection[str]) -> None:
    """Have a server's requests of a failed attempt go, though the bind had to be undone: what
    they hold must be cleaned before it can be had again."""
    rows = arqs.locked(
        ledger.session, Arq.instance_uuid.in_({binding.instance_uuid for binding in bindings}))
    _delete_leftovers(ledger, rows, {binding.arq_uuid: binding for binding in bindings}, idle)


def _held_here(rows: Sequence[Arq], wanted: Mapping[str, objects.Binding]) -> list[Arq]:
    """Further requests of these servers that hold something on the hosts they are bound to."""
    places = {(binding.instance_uuid, binding.hostname) for binding in wanted.values()}
    return [row for row in rows if row.uuid not in wanted and row.state in arq_states.HOLDING
            and (row.instance_uuid, row.hostname) in places]


def _delete_leftovers(ledger: Ledger, rows: Sequence[Arq], wanted: Mapping[str, objects.Binding],
                      idle: Collection[str]) -> None:
    """Delete what failed attempts to bind something to these servers have left."""
    kept = {row.uuid for row in _held_here(rows, wanted) if row.instance_uuid not in idle}
    releasing.delete_rows(
        ledger, [row for row in rows if row.uuid not in wanted and row.uuid not in kept],
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


def _take(session: orm.Session, rows: Sequence[Arq], wanted: dict[str, objects.Binding],
          silent_since: datetime.datetime) -> Taken:
    """A handle for each, in the order in which everybody tries."""
    offers = attach_handles.offers(
        session, {wanted[arq.uuid].device_rp_uuid for arq in rows})
    taken: Taken = []
    for arq in rows:
        binding = wanted[arq.uuid]
        offer = offers.get(binding.device_rp_uuid)
        if offer is None or offer.hostname != binding.hostname:
            raise errors.ProviderNotFound(host=binding.hostname, rp=binding.device_rp_uuid)
        matching.require_honoured(f'Accelerator request {arq.uuid}', arq.group)
        matching.require_fit(arq, offer, binding.device_rp_uuid)
        is_host_prepared = offer.take(session, arq.id)
        if is_host_prepared is None:
            offers[binding.device_rp_uuid] = _cleaned_meanwhile(session, arq, binding,
                                                                silent_since)
            is_host_prepared = offers[binding.device_rp_uuid].take(session, arq.id)
        if is_host_prepared is None:
            raise errors.NoFreeHandle(rp=binding.device_rp_uuid, host=binding.hostname,
                                      uuid=arq.uuid)
        taken.append((arq, binding, is_host_prepared))
    return taken


def _cleaned_meanwhile(session: orm.Session, arq: Arq, binding: objects.Binding,
                       silent_since: datetime.datetime) -> attach_handles.Offer:
    """What a provider has to give after all; an error if its host has yet to clean something.

    A host may end a clean-up between two statements of ours: what it had not cleaned when we
    looked for a handle is free when we ask what it has to clean.
    """
    rp = binding.device_rp_uuid
    refusal = REFUSALS.get(attach_handles.clean_up(session, rp, silent_since))
    if refusal is not None:
        raise refusal(rp=rp, host=binding.hostname, uuid=arq.uuid)
    return attach_handles.offers(session, {rp})[rp]


def _start(ledger: Ledger, taken: Taken, deadline: datetime.datetime) -> None:
    """Write the new state of one server's requests, and note what its host has to do."""
    waiting = {arq.id: arq for arq, _, is_host_prepared in taken if is_host_prepared}
    for arq, binding, is_host_prepared in taken:
        before = arq.state
        after = arq_states.after(before, Event.BIND, arq.uuid)
        if not waiting:
            after = arq_states.after(after, Event.ATTACHED, arq.uuid)
        arqs.write(
            ledger, [arq], before, after, hostname=binding.hostname,
            device_rp_uuid=binding.device_rp_uuid, instance_uuid=binding.instance_uuid,
            project_id=binding.project_id or arq.project_id, reason=None,
            is_prepared=not is_host_prepared, bind_deadline=deadline if waiting else None)
        ledger.step(arq, Event.BIND, before, after)
    if not waiting:
        ledger.announce((arq for arq, _, _ in taken), 'completed')
        return
    for handle in attach_handles.held_by_any(ledger.session, list(waiting)):
        arq = waiting[handle.arq_id]
        ledger.assign(arq.hostname, attach_handles.work(handle, objects.WorkKind.ATTACH, arq))


# -- what the host did -----------------------------------------------------------------------


def _servers(session: orm.Session, uuids: Collection[str]) -> list[list[Arq]]:
    """All requests of the servers that these belong to, by server: the last part that is done
    must see the others done."""
    instances = [uuid for uuid in session.scalars(sa.select(Arq.instance_uuid).distinct().where(
        Arq.uuid.in_(uuids), Arq.instance_uuid.is_not(None))) if uuid]
    rows = arqs.locked(session, Arq.instance_uuid.in_(instances)) if instances else []
    return [[row for row in rows if row.instance_uuid == each] for each in instances]


def attached(ledger: Ledger, outcomes: Mapping[str, objects.Outcome]) -> set[str]:
    """The host prepared these requests' handles; answers which of them still wanted it."""
    wanted: set[str] = set()
    for rows in _servers(ledger.session, outcomes):
        done = [row for row in rows
                if row.uuid in outcomes and row.state in arq_states.HOLDING]
        held = {handle.arq_id: handle for handle in attach_handles.held_by_any(
            ledger.session, [row.id for row in done])}
        done = [row for row in done
                if attach_handles.is_about(outcomes[row.uuid], held.get(row.id))]
        wanted.update(row.uuid for row in done)
        for row in done:
            row.is_prepared = True
        ledger.session.flush()
        _complete(ledger, rows)
    return wanted


def _complete(ledger: Ledger, rows: Sequence[Arq]) -> None:
    """Let a server's requests become Bound once nothing of theirs is outstanding."""
    starting = [row for row in rows if row.state == State.BIND_STARTED]
    if not all(row.is_prepared for row in starting):
        starting = []
    again = [row for row in rows if row.state == State.PROVISIONING and row.is_prepared]
    ready = starting + again
    arqs.move(ledger, ready, Event.ATTACHED, bind_deadline=None)
    ledger.announce(ready, 'completed')


def failed(ledger: Ledger, outcome: objects.Outcome, most: int) -> objects.Work | None:
    """The host could not prepare a handle: answers the work, if it should try again.

    A bind is tried so often, then all of the server's requests fail. What is being re-created
    for a server that runs is tried for ever.
    """
    for rows in _servers(ledger.session, [outcome.arq_uuid]):
        arq = next((row for row in rows if row.uuid == outcome.arq_uuid), None)
        if arq is None or arq.state not in arq_states.HOLDING:
            return None  # it went before we had it for ourselves
        handle = attach_handles.held_by(ledger.session, arq.id)
        if not attach_handles.is_about(outcome, handle):
            return None
        attempts = attach_handles.note_failure(ledger.session, handle, outcome.error)
        if arq.state == State.BIND_STARTED and attempts >= most:
            _undo(ledger, [row for row in rows if row.state == State.BIND_STARTED],
                  outcome.error)
            return None
        # what is gone cannot be prepared; should it come back, the next plan says so
        return None if handle.is_missing else attach_handles.work(
            handle, objects.WorkKind.ATTACH, arq)
    return None


def _undo(ledger: Ledger, rows: Sequence[Arq], why: str) -> None:
    """The bind of a server's requests has failed: nothing is held, a new bind may come."""
    releasing.let_go(ledger, rows)
    arqs.move(ledger, rows, Event.FAILED, why, bind_deadline=None, is_prepared=False)
    ledger.announce(rows, 'failed')


def fail_overdue(ledger: Ledger) -> None:
    """Binds whose deadline has passed have failed."""
    overdue = ledger.session.scalars(sa.select(Arq.uuid).where(
        Arq.state == State.BIND_STARTED, Arq.bind_deadline < models.now())).all()
    for rows in _servers(ledger.session, overdue):
        starting = [row for row in rows if row.state == State.BIND_STARTED]
        if starting:
            _undo(ledger, starting,
                  f'Host {starting[0].hostname} did not prepare the device in time.')


def provision(ledger: Ledger, hostname: str, *which: sa.ColumnElement[bool]) -> None:
    """An agent starts, or such handles came back: what was prepared of them may be gone."""
    is_held = sa.select(Handle.id).where(
        Handle.arq_id == Arq.id, Handle.is_host_prepared, *which).exists()
    _prepare_again(ledger, arqs.locked(ledger.session, Arq.hostname == hostname, IS_PREPARED,
                                       is_held))


def lose(ledger: Ledger, handles: Collection[int]) -> None:
    """These handles, by row, went with their card: a bind that is under way does not end before
    they are back and prepared again."""
    rows = arqs.locked(
        ledger.session, Arq.state == State.BIND_STARTED, Arq.is_prepared,
        Arq.id.in_(sa.select(Handle.arq_id).where(Handle.id.in_(handles))))
    _prepare_again(ledger, rows)


def _prepare_again(ledger: Ledger, rows: Sequence[Arq]) -> None:
    """Ask the host anew for what it had prepared. A bind that is under way goes on waiting."""
    bound = [row for row in rows if row.state == State.BOUND]
    arqs.move(ledger, bound, Event.PROVISION, is_prepared=False)
    if starting := [row for row in rows if row.state == State.BIND_STARTED]:
        arqs.write(ledger, starting, State.BIND_STARTED, State.BIND_STARTED, is_prepared=False)


def compare(ledger: Ledger, report: objects.Report) -> None:
    """Have the host prepare again what it lost, and remove what nobody asked for.

    A handle that a request should have, and that went with its card or was undone by
    somebody, is prepared again. A mediated device that is left of a request that is gone is
    removed. Those that are not ours are left alone, and so are those that were ours, or that
    the host worked on, when it looked: they may have been cleaned since.
    """
    here = sa.and_(
        Handle.is_missing.is_(False),
        Handle.deployable_id.in_(
            sa.select(models.Deployable.id).join(models.Deployable.device)
            .where(models.Device.hostname == report.hostname)))
    lost = list(report.given('lost', {}).items())
    if lost:
        _prepare_again(ledger, arqs.locked(ledger.session, IS_PREPARED, Arq.id.in_(
            sa.select(Handle.arq_id).where(
                here, sa.tuple_(Handle.uuid, Handle.turn).in_(lost)))))
    leftover = set(report.mdevs or ()) - attach_handles.known_to_host(report)
    if leftover:
        ledger.session.execute(
            sa.update(Handle).where(here, attach_handles.IS_FREE,
                                    Handle.type == objects.HandleType.MDEV,
                                    Handle.uuid.in_(leftover))
            .values(cleanup_since=models.now()),
            execution_options={'synchronize_session': False})
