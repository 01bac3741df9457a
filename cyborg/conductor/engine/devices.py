# SPDX-License-Identifier: Apache-2.0
"""Devices: an operator enables and disables them."""

from cyborg.conductor.engine import device_events
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import devices


def set_status(unit: UnitOfWork, uuid: str, status: str) -> None:
    """Enable or disable a device. Its host publishes that, also if the status is the same: clients
    repeat calls."""
    device = devices.locked(unit.session, uuid)
    if device.status != status:
        device.status = status
        unit.note(device_events.of_status(unit.session, device))
    unit.hosts_to_wake.add(device.hostname)
