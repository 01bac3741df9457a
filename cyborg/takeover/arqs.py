# SPDX-License-Identifier: Apache-2.0
"""Imports the accelerator requests of the upstream service. A bound one is imported in any case."""

from collections.abc import Mapping

import sqlalchemy as sa

from cyborg.db.sqlalchemy import models, tasks
from cyborg.objects import Decision, TaskState, Withheld
from cyborg.objects.arq_states import Event, State
from cyborg.takeover.handles import quarantine
from cyborg.takeover.import_run import ImportRun, stamps
from cyborg.takeover.profiles import Group
from cyborg.takeover.source import Content, Row

REASON = 'Imported from the database of another service.'
#: a request in one of these states keeps its server: Nova deletes both together
OF_SERVER = (State.BOUND, State.BIND_FAILED)


def servers_without_project(content: Content) -> set[str]:
    """Returns the servers of bound requests that have no project in the other database."""
    return {
        row['instance_uuid']
        for row in content['extended_accelerator_requests']
        if row['state'] == State.BOUND and row['instance_uuid'] and not row['project_id']
    }


def handles_to_hold(run: ImportRun) -> set[int]:
    """Returns the handles, by the number of theirs, that requests hold when this import ends: a
    request that is not bound, or was imported before, takes no handle."""
    return {
        row['attach_handle_id']
        for row in run.content['extended_accelerator_requests']
        if _state(row)[0] == State.BOUND and not run.present('request', models.ExtArq, row)[0]
    }


def import_arqs(
    run: ImportRun,
    profiles: Mapping[int, models.DeviceProfile | None],
    handles: Mapping[int, models.AttachHandle | None],
) -> None:
    """Import the requests.

    :param profiles: our device profiles, by the number of theirs
    :param handles: our attach handles, by the number of theirs
    """
    for row in run.content['extended_accelerator_requests']:
        is_there, mine = run.present('request', models.ExtArq, row)
        if is_there:
            _compare(run, row, mine, handles.get(row['attach_handle_id']))
            _complete(run, row, mine)
        else:
            profile = profiles.get(row['device_profile_id'])
            _arq(run, row, profile, handles.get(row['attach_handle_id']))


def _compare(
    run: ImportRun, row: Row, mine: models.ExtArq | None, handle: models.AttachHandle | None
) -> None:
    """Note that a request has changed there since it was imported. If it was bound there, no other
    request must get its handle here."""
    before = run.known.get(('request', row['uuid']))
    if before is None or before.state == row['state']:
        return
    if mine is not None:
        run.note(
            f'Request {row["uuid"]} was {before.state} when it was imported, and is '
            f'{row["state"]} in the upstream database now; here it stays {mine.state}. Only '
            'one of the services may run.'
        )
    if row['state'] != State.BOUND or handle is None:
        return
    used = f'Server {row["instance_uuid"]} has it by request {row["uuid"]} of the upstream service.'
    if handle.is_unused:
        quarantine(run, handle, handle.deployable, used)
        before.state = row['state']  # else an import after the clean-up would withhold it again
    elif handle.arq is not None and handle.arq.uuid != row['uuid']:
        run.note(
            f'Attach handle {handle.uuid} is held by request {handle.arq.uuid} here. {used} Stop '
            'one of the two servers.'
        )


def _complete(run: ImportRun, row: Row, mine: models.ExtArq | None) -> None:
    """Give a bound request that an earlier run imported without a project that of its server."""
    if mine is None or mine.project_id or mine.state != State.BOUND:
        return
    if (project := _project(run, row)) is None:
        return
    mine.project_id = project
    step = models.ArqTransition
    run.session.execute(
        sa.update(step)
        .where(step.arq_uuid == mine.uuid, step.project_id.is_(None))
        .values(project_id=project)
    )
    run.outcome.completed.append(
        {'uuid': mine.uuid, 'server': mine.instance_uuid, 'project': project}
    )


def _project(run: ImportRun, row: Row) -> str | None:
    """Returns the project of a bound request: its own, else that of its server."""
    project: str | None = row['project_id'] or run.owners.projects.get(row['instance_uuid'])
    if project is None and row['instance_uuid']:
        run.note(
            f'Request {row["uuid"]} has no project in the upstream database, and that of its '
            f'server {row["instance_uuid"]} is not known. Nova reads the request with the token '
            'of the owner of the server, does not find it, and so cannot start, reboot or '
            f'rebuild the server. {run.owners.why}'
        )
    return project


def _arq(
    run: ImportRun,
    row: Row,
    profile: models.DeviceProfile | None,
    handle: models.AttachHandle | None,
) -> None:
    state, reason = _state(row)
    run.record('request', row['uuid'], state=row['state'])
    if state is None:
        run.note(f'Request {row["uuid"]} is left out: {reason}')
        return
    if reason:
        run.note(f'Request {row["uuid"]} becomes {state}: {reason}')
    mine = models.ExtArq(
        uuid=row['uuid'],
        state=state,
        device_profile=profile,
        device_profile_name=profile.name if profile else None,
        device_profile_group_id=row['device_profile_group_id'],
        group=_group(run, row, profile),
        project_id=_project(run, row) if state == State.BOUND else row['project_id'],
        reason=reason,
        **stamps(row),
    )
    if state in OF_SERVER:
        mine.hostname, mine.instance_uuid = row['hostname'], row['instance_uuid']
        mine.device_rp_uuid = row['device_rp_uuid']
    run.session.add(mine)
    taken = _take(run, row, mine, handle) if state == State.BOUND else None
    run.unit.step(mine, Event.CREATE, None, state, REASON)
    run.outcome.requests.append(
        {
            'uuid': row['uuid'],
            'state': row['state'],
            'imported_as': str(state),
            'profile': profile.name if profile else None,
            'server': mine.instance_uuid,
            'host': mine.hostname,
            'handle': taken.uuid if taken else None,
        }
    )


def _group(run: ImportRun, row: Row, profile: models.DeviceProfile | None) -> Group:
    groups = profile.groups if profile is not None else []
    number = row['device_profile_group_id']
    if 0 <= number < len(groups):
        return groups[number]
    run.note(
        f'The device profile of request {row["uuid"]} has no group {number}: what the request '
        'asked for is not known here.'
    )
    return {}


def _take(
    run: ImportRun, row: Row, mine: models.ExtArq, handle: models.AttachHandle | None
) -> models.AttachHandle | None:
    """Have a bound request hold its handle; returns None if it gets none."""
    if handle is None:
        run.note(
            f'Request {row["uuid"]} is bound to server {row["instance_uuid"]} without an '
            'attach handle: it is imported, but Nova cannot start that server again.'
        )
        return None
    if handle.arq is not None:
        run.note(
            f'Requests {handle.arq.uuid} and {row["uuid"]} both hold attach handle '
            f'{handle.uuid}: the first keeps it, and the other is imported without one.'
        )
        return None
    if handle.withheld == Withheld.QUARANTINED:
        _end_quarantine(run, mine, handle)
    handle.arq = mine
    handle.generation += 1
    return handle


def _end_quarantine(run: ImportRun, mine: models.ExtArq, handle: models.AttachHandle) -> None:
    """End the quarantine of a handle that a server uses: an operator must not have it cleaned."""
    handle.withheld = None
    if (failed := tasks.quarantined(run.session, handle.uuid)) is not None:
        why = f'Imported request {mine.uuid} holds it.'
        tasks.note_decision(failed, TaskState.FAILED, Decision.RELEASE, run.unit.actor, why)


def _state(row: Row) -> tuple[State | None, str | None]:
    """Returns the state in which a request is imported, and why it is another one; None: it is
    not imported."""
    match row['state']:
        case 'Deleting':
            return None, 'it was being deleted.'
        case 'BindStarted':
            return State.BIND_FAILED, (
                'The upstream service was stopped before it had bound the request.'
            )
        case 'UnbindFailed':
            # no event leads to this state here, and a request in it cannot be bound again
            return State.BIND_FAILED if row['instance_uuid'] else State.UNBOUND, (
                'The upstream service failed to release its attach handle.'
            )
    return State(row['state']), None
