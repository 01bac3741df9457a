# SPDX-License-Identifier: Apache-2.0
"""Hosts: what follows from their reports, and from an operator's word that one is gone."""

import datetime

from cyborg import errors, objects
from cyborg.conductor.engine import arqs, inventory, tasks
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import agents, attach_handles, devices
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.db.sqlalchemy.engine import Session


def take_report(unit: UnitOfWork, report: objects.Report, *,
                is_apart: bool = False) -> objects.Plan:
    """Take in the picture of a host; returns what it has to publish and to do."""
    session, hostname = unit.session, report.hostname
    agents.accept(session, report)
    if report.is_first:  # what it had prepared may be gone
        arqs.prepare_again(unit, arqs_db.holding(session, hostname))
    gone = attach_handles.gone(session, hostname)
    rows = inventory.reconcile(unit, report, is_apart=is_apart)
    if gone:
        arqs.prepare_again(unit, arqs_db.holding_present(session, hostname, gone))
    if lost := inventory.gone(rows) - set(gone):
        # a bind that is under way does not end before they are back and prepared again
        arqs.prepare_again(unit, arqs_db.starting_with(session, lost))
    if report.is_first:
        arqs.program_again(unit, inventory.emptied(rows))
    _compare(unit, report)
    session.flush()
    return objects.Plan(providers=inventory.providers(session, hostname, rows),
                        tasks=tasks_db.pending(session, hostname))


def _compare(unit: UnitOfWork, report: objects.Report) -> None:
    """Have the host prepare again what it lost, and remove what nobody asked for.

    A handle that a request should have, and that went with its card or was undone by somebody, is
    prepared again. A mediated device that is left of a request that is gone is removed. Those
    that are not ours are left alone, and so are those that were ours, or that the host worked on,
    when it looked: they may have been cleaned since.
    """
    if lost := list(report.given('lost', {}).items()):
        arqs.prepare_again(unit, arqs_db.holding_generations(
            unit.session, report.hostname, lost))
    leftover = set(report.mdevs or ()) - attach_handles.known_to_host(report)
    if leftover:
        tasks.release_unwanted(unit, attach_handles.leftovers(
            unit.session, report.hostname, leftover))


def require_gone(session: Session, hostname: str, silent_since: datetime.datetime) -> None:
    """Refuse to forget a host whose agent lives: it would only come back."""
    beat = agents.last_heartbeat(session, hostname)
    if beat is None and not devices.are_on(session, hostname):
        raise errors.NotFound(f'There is no host {hostname}.')
    if beat is not None and beat >= silent_since:
        raise errors.Conflict(
            f'The agent of {hostname} was heard of at {beat:%H:%M:%S} UTC: stop it first.')


def forget(unit: UnitOfWork, hostname: str) -> dict[str, int]:
    """A host is gone for good: unbind what is bound there, drop all that is known of it.

    Binds may go on meanwhile. One that took a handle before we had it for ourselves is unbound
    like the others; one that comes later finds nothing to take.
    """
    session = unit.session
    agents.delete(session, hostname)  # first, so that a report of the host waits for us
    rows = arqs_db.on_host(session, hostname)
    known = devices.load(session, hostname)
    handles = [handle for device in known for part in device.deployables
               for handle in part.attach_handles]
    attach_handles.lock(handles)
    late = {handle.arq_id for handle in handles} - {None, *(row.id for row in rows)}
    rows += arqs_db.by_ids(session, late)
    arqs.unbind_rows(unit, rows, f'Host {hostname} is gone.')
    unit.tasks.clear()  # nobody is there to do it
    unit.hosts_to_wake.clear()
    tasks_db.forget_host(session, hostname)
    devices.delete(session, known)
    devices.forget_divided(session, hostname)
    return {'requests unbound': len(rows), 'devices forgotten': len(known)}
