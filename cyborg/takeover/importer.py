# SPDX-License-Identifier: Apache-2.0
"""Imports the rows of the upstream service into our database, in the transaction of a unit.

A row is imported once: its uuid is recorded, so that a second import adds only what is new. What
cannot be imported as it is becomes a note.
"""

from collections.abc import Collection

import sqlalchemy as sa

from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import agents, models
from cyborg.takeover import arqs, handles, inventory, profiles
from cyborg.takeover.import_run import ImportRun, Outcome, Owners
from cyborg.takeover.source import Content


def import_content(
    unit: UnitOfWork,
    content: Content,
    rename: profiles.Rename,
    extra_keys: Collection[str],
    owners: Owners,
) -> Outcome:
    """Import all rows; returns what was added, and notes for the operator."""
    run = ImportRun(unit, content, owners)
    with run.session.no_autoflush:  # rows are complete only at the end
        made = profiles.import_profiles(run, rename, extra_keys)
        devices = inventory.import_devices(run)
        held = arqs.handles_to_hold(run)
        deployables = inventory.import_deployables(run, devices, held)
        arqs.import_arqs(run, made, handles.import_handles(run, deployables, held))
    run.session.flush()
    new = [*run.outcome.devices, *run.outcome.deployables]
    agents.distrust(run.session, {each['host'] for each in new})
    _note_waiting(run)
    return run.outcome


def _note_waiting(run: ImportRun) -> None:
    """Note the rows of earlier imports that no driver has reported since."""
    new = {each['uuid'] for each in run.outcome.devices}
    for device in run.session.scalars(
        sa.select(models.Device).where(models.Device.is_imported).order_by(models.Device.id)
    ):
        if device.uuid not in new:
            run.note(
                f'No driver has reported imported device {device.uuid} on {device.hostname} '
                f'({device.type}, vendor {device.vendor}) yet: start the agent there with its '
                'driver in [agent] enabled_drivers.'
            )
    lost = sa.select(models.AttachHandle).where(
        models.AttachHandle.is_missing,
        models.AttachHandle.arq_id.is_not(None),
        models.AttachHandle.uuid.in_(sa.select(models.ImportedRow.uuid)),
    )
    for handle in run.session.scalars(lost):
        holder = handle.arq
        run.note(
            f'No driver reports attach handle {handle.uuid}, which request '
            f'{holder.uuid if holder else "?"} holds: the request keeps it, and the handle is '
            'not given out afterwards.'
        )
