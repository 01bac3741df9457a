# SPDX-License-Identifier: Apache-2.0
"""Imports the attach handles of the upstream service. One that is in use for no bound request is
quarantined."""

from collections.abc import Collection

from cyborg import objects
from cyborg.conductor.engine import imported
from cyborg.db.sqlalchemy import attach_handles, clock, models
from cyborg.objects import TaskKind, TaskState, Withheld
from cyborg.takeover import source
from cyborg.takeover.import_run import ImportRun, stamps
from cyborg.takeover.inventory import Deployables
from cyborg.takeover.source import Row

#: rows of ours, by the number of theirs; None: deleted since it was imported, or left out
Handles = dict[int, models.AttachHandle | None]


def import_handles(run: ImportRun, deployables: Deployables, held: Collection[int]) -> Handles:
    """Import the attach handles, also those that are gone if they are held; returns our rows."""
    found: Handles = {}
    theirs = {row['uuid'] for row in run.content['attach_handles']}
    for row in run.content['attach_handles']:
        is_there, mine = run.present('handle', models.AttachHandle, row)
        if not is_there or (mine is None and row['id'] in held):
            part = deployables.get(row['deployable_id'])
            mine = _handle(run, row, part, row['id'] in held, theirs)
        found[row['id']] = mine
    return found


def _handle(
    run: ImportRun,
    row: Row,
    part: models.Deployable | None,
    is_held: bool,
    theirs: Collection[str],
) -> models.AttachHandle | None:
    if part is None:
        run.note(f'Attach handle {row["uuid"]} is left out: its deployable is gone.')
        return None
    info = source.facts(row['attach_info'])
    if info is None:
        info = {}
        run.note(
            f'The info of attach handle {row["uuid"]} is not JSON: no driver will recognize '
            'it, so it is kept only as long as a request holds it.'
        )
    reported = _reported(part, objects.AttachHandle(type=row['attach_type'], info=info), theirs)
    if reported is not None and not reported.is_unused:
        run.record('handle', row['uuid'], merged_into=reported.uuid)
        return reported
    if part in run.session.new or part.device.is_imported:
        if reported is not None:  # it moves to this part
            reported.deployable.attach_handles.remove(reported)
        mine = _new_handle(row, part, info)
        run.session.add(mine)
    elif reported is not None:
        mine, part = reported, reported.deployable
        mine.uuid = row['uuid']  # a mediated device of a server has this uuid
    else:
        run.note(
            f'Attach handle {row["uuid"]} is left out: the agent on {part.device.hostname} has '
            'reported its device, and no handle at its place.'
        )
        return None
    run.record('handle', row['uuid'])
    run.outcome.handles.append(
        {
            'uuid': row['uuid'],
            'deployable': part.uuid,
            'type': row['attach_type'],
            'info': info,
            'held': is_held,
        }
    )
    if row['in_use'] and not is_held:
        why = 'The upstream service marked it as in use, and no bound request holds it.'
        quarantine(run, mine, part, why)
    return mine


def _reported(
    part: models.Deployable, wanted: objects.AttachHandle, theirs: Collection[str]
) -> models.AttachHandle | None:
    """Returns our handle at the place of a new one of theirs, locked, if drivers have reported its
    device. Our rows of other handles of theirs do not count."""
    if part.device.is_imported:
        return None
    for handle in imported.at_place(part.device, wanted):
        if handle.uuid not in theirs:
            attach_handles.lock([handle])
            return handle
    return None


def _new_handle(row: Row, part: models.Deployable, info: dict[str, str]) -> models.AttachHandle:
    return models.AttachHandle(
        uuid=row['uuid'],
        deployable=part,
        key=f'{imported.PREFIX}{row["uuid"]}',
        type=row['attach_type'],
        info=info,
        is_host_prepared=row['attach_type'] == objects.HandleType.MDEV,
        generation=0,
        **stamps(row),
    )


def quarantine(
    run: ImportRun, handle: models.AttachHandle, part: models.Deployable, why: str
) -> None:
    """Withhold a handle until an operator has it cleaned."""
    handle.withheld = Withheld.QUARANTINED
    run.session.add(
        models.Task(
            kind=TaskKind.CLEAN,
            state=TaskState.QUARANTINED,
            hostname=part.device.hostname,
            device_uuid=part.device.uuid,
            deployable_uuid=part.uuid,
            handle_uuid=handle.uuid,
            generation=handle.generation,
            attempts=1,
            error=why,
            finished_at=clock.now(),
        )
    )
    run.note(
        f'Attach handle {handle.uuid} on {part.device.hostname} is quarantined. {why} When no '
        f'server uses it, run cyborg-manage handle clean {handle.uuid}.'
    )
