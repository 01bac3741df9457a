# SPDX-License-Identifier: Apache-2.0
"""Hosts: applies their reports, and forgets hosts that an operator declares gone."""

import datetime
import functools

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor.engine import arqs, imported, inventory, providers, recovery, tasks
from cyborg.conductor.engine.changes import of_agent
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import agents, attach_handles, devices, imported_rows
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.db.sqlalchemy.engine import Session


def take_report(
    unit: UnitOfWork,
    report: objects.Report,
    silent_since: datetime.datetime,
    *,
    is_apart: bool = False,
) -> objects.Plan:
    """Apply a host's report; returns what the host must publish and perform."""
    session, hostname = unit.session, report.hostname
    known = agents.known(session, hostname)
    agents.accept(session, report)
    _note_agent(unit, report, known, silent_since)
    imported.match(session, report)  # first, because the following steps compare keys of drivers
    if report.is_first:  # what the host had prepared may be gone
        recovery.prepare_again(unit, arqs_db.holding(session, hostname))
    gone = attach_handles.gone(session, hostname)
    rows, emptied = inventory.reconcile(unit, report, is_apart=is_apart)
    if gone:
        recovery.prepare_again(unit, arqs_db.holding_present(session, hostname, gone))
    if lost := inventory.gone(rows) - set(gone):
        # a bind in progress completes only when these are back and prepared again
        recovery.prepare_again(unit, arqs_db.starting_with(session, lost))
    recovery.program_again(unit, emptied)
    _compare(unit, report)
    session.flush()
    return objects.Plan(
        providers=providers.tree(
            session,
            hostname,
            rows,
            # read after the host was locked: an operator may have disabled it just now
            is_disabled=agents.is_disabled(session, hostname),
        ),
        tasks=tasks_db.pending(session, hostname, tasks.pause),
        imported_providers=imported_rows.providers_of(session, hostname),
    )


def _note_agent(
    unit: UnitOfWork,
    report: objects.Report,
    known: agents.Known | None,
    silent_since: datetime.datetime,
) -> None:
    """Note the changes of the agent itself that the report shows."""
    tell = functools.partial(_tell, unit, report.hostname, known.uuid if known else None)
    if known is None:
        tell('registered')
    elif report.is_first:
        tell('started')
    elif known.last_heartbeat < silent_since:
        tell('up')
    if report.is_ready != (known is not None and known.is_ready):
        tell('ready' if report.is_ready else 'not ready')
    before = {each['name']: each['error'] for each in known.drivers} if known else {}
    for driver in report.drivers:
        if driver.error is not None and driver.error != before.get(driver.name):
            tell('driver failed', log.WARNING, driver=driver.name, error=driver.error)
        elif driver.error is None and before.get(driver.name) is not None:
            tell('driver recovered', driver=driver.name)


def _tell(
    unit: UnitOfWork,
    hostname: str,
    uuid: str | None,
    verb: str,
    level: int = log.INFO,
    **facts: object,
) -> None:
    unit.note(of_agent(hostname, verb, level, uuid=uuid, **facts))


def _compare(unit: UnitOfWork, report: objects.Report) -> None:
    """Have the host prepare lost handles again and remove leftover mediated devices.

    A held handle that disappeared is prepared again. A mediated device of a request that no
    longer exists is removed. Mediated devices that Cyborg did not create are left alone. So are
    those that the host had prepared or worked on during its discovery: they may be clean by now.
    """
    if lost := list(report.given('lost', {}).items()):
        recovery.prepare_again(
            unit, arqs_db.holding_generations(unit.session, report.hostname, lost)
        )
    leftover = set(report.mdevs or ()) - attach_handles.known_to_host(report)
    if leftover:
        tasks.release_unwanted(
            unit, attach_handles.leftovers(unit.session, report.hostname, leftover)
        )


def disable(unit: UnitOfWork, hostname: str, reason: str | None) -> None:
    """Refuse new binds on a host for a reason, or allow them again if the reason is None. Bound
    requests stay. The host is woken, and publishes what is reserved now."""
    agents.lock(unit.session, hostname)
    known = agents.known(unit.session, hostname)
    if known is None:
        raise errors.AgentNotFound(ref=hostname)
    if known.disabled_reason == reason:
        return
    agents.set_disabled(unit.session, hostname, reason)
    unit.hosts_to_wake.add(hostname)
    verb = 'enabled' if reason is None else 'disabled'
    _tell(unit, hostname, known.uuid, verb, reason=reason)


def require_gone(session: Session, hostname: str, silent_since: datetime.datetime | None) -> None:
    """Raises NotFound if nothing is known of the host, and Conflict if its agent is alive: its next
    report would add the host again. If ``silent_since`` is None, the agent may be alive."""
    beat = agents.last_heartbeat(session, hostname)
    if beat is None and not devices.are_on(session, hostname):
        raise errors.NotFound(f'There is no host {hostname}.')
    if beat is not None and silent_since is not None and beat >= silent_since:
        raise errors.Conflict(
            f'The agent of {hostname} sent a heartbeat at {beat:%H:%M:%S} UTC: stop it first.'
        )


def forget(unit: UnitOfWork, hostname: str) -> dict[str, int]:
    """Unbind all requests on a host and delete all its rows; returns the number of each.

    Binds may run at the same time. A bind that took a handle before its row was locked here is
    unbound like the others; a later bind finds no handle.
    """
    session = unit.session
    agents.delete(session, hostname)  # first, so that a concurrent report of the host waits
    rows = arqs_db.on_host(session, hostname)
    known = devices.load(session, hostname)
    handles = [
        handle for device in known for part in device.deployables for handle in part.attach_handles
    ]
    attach_handles.lock(handles)
    holders = {handle.arq_id for handle in handles if handle.arq_id is not None}
    rows += arqs_db.by_ids(session, holders - {row.id for row in rows})
    arqs.unbind_rows(unit, rows, f'Host {hostname} is gone.')
    unit.tasks.clear()  # no agent is left to perform them
    unit.hosts_to_wake.clear()
    _tell(unit, hostname, None, 'forgotten')
    tasks.cancel_all(unit, hostname)
    devices.delete(session, known)
    devices.forget_divided(session, hostname)
    return {'requests unbound': len(rows), 'devices forgotten': len(known)}
