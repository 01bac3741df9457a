# SPDX-License-Identifier: Apache-2.0
"""Inserts the rows of a large cloud into the database in bulk, without the services."""

import itertools
import math
import uuid
from collections.abc import Iterable
from typing import Any, Self

import sqlalchemy as sa

from cyborg.db.sqlalchemy import clock, engine, models

#: rows per INSERT
BATCH = 2_000
#: handles per stored device, all of them in use
HANDLES = 8
PROFILE = 'stored'
ACTOR = 'user stored'

Row = dict[str, Any]


class StoredRows:
    """Inserts requests, each bound to its own handle, with their history.

    The rows have ids above OFFSET, so that they do not collide with those of services.
    """

    OFFSET = 1_000_000

    def __init__(self, database: str) -> None:
        self._db = engine.Database(database)
        self.arqs = self.devices = 0

    def __enter__(self) -> Self:
        with self._db.writer() as session:
            self._profile = session.execute(
                sa.insert(models.DeviceProfile).values(
                    name=PROFILE, groups=[{'resources:FPGA': '1'}]
                )
            ).inserted_primary_key[0]
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()
        self._db.close()

    def grow(self, arqs: int) -> None:
        """Insert rows until there are so many requests, and the devices that they are bound to."""
        self.grow_devices(math.ceil(arqs / HANDLES))
        numbers = range(self.arqs, arqs)
        self._insert(models.ExtArq, map(self._arq, numbers))
        for event, before, after in (('create', None, 'Initial'), ('bind', 'Initial', 'Bound')):
            self._insert(
                models.ArqTransition,
                (
                    {
                        'arq_uuid': _uuid('arq', n),
                        'project_id': _project(n),
                        'event': event,
                        'from_state': before,
                        'to_state': after,
                        'actor': ACTOR,
                        'hostname': _host(n),
                        'instance_uuid': _uuid('instance', n),
                    }
                    for n in numbers
                ),
            )
        with self._db.writer() as session:  # assign the handles
            session.execute(
                sa.update(models.AttachHandle)
                .where(
                    models.AttachHandle.id.between(self.OFFSET + self.arqs, self.OFFSET + arqs - 1)
                )
                .values(arq_id=models.AttachHandle.id)
            )
        self.arqs = max(self.arqs, arqs)

    def grow_devices(self, devices: int) -> None:
        """Insert rows until there are so many devices, with their deployables and handles."""
        numbers = range(self.devices, devices)
        self._insert(models.Device, map(self._device, numbers))
        self._insert(
            models.ControlPath,
            (
                {'device_id': self.OFFSET + n, 'type': 'PCI', 'info': _address(n, 0)}
                for n in numbers
            ),
        )
        self._insert(models.Deployable, map(self._deployable, numbers))
        self._insert(
            models.Attribute,
            (
                {'deployable_id': self.OFFSET + n, 'key': key, 'value': value}
                for n in numbers
                for key, value in (('rc', 'FPGA'), ('trait0', 'CUSTOM_STORED'))
            ),
        )
        self._insert(
            models.AttachHandle,
            (
                {
                    'id': self.OFFSET + n * HANDLES + unit,
                    'deployable_id': self.OFFSET + n,
                    'key': str(unit),
                    'type': 'PCI',
                    'info': _address(n, unit + 1),
                }
                for n in numbers
                for unit in range(HANDLES)
            ),
        )
        self.devices = max(self.devices, devices)

    def clear(self) -> None:
        """Delete all inserted rows, and no others."""

        def ours(column: Any, count: int) -> Any:
            return column.between(self.OFFSET, self.OFFSET + count - 1)

        conditions: dict[type[models.Base], Any] = {
            models.ArqTransition: models.ArqTransition.actor == ACTOR,
            models.AttachHandle: ours(models.AttachHandle.id, self.devices * HANDLES),
            models.ExtArq: ours(models.ExtArq.id, self.arqs),
            models.Attribute: ours(models.Attribute.deployable_id, self.devices),
            models.Deployable: ours(models.Deployable.id, self.devices),
            models.ControlPath: ours(models.ControlPath.device_id, self.devices),
            models.Device: ours(models.Device.id, self.devices),
            models.DeviceProfile: models.DeviceProfile.id == self._profile,
        }
        for model, condition in conditions.items():
            with self._db.writer() as session:
                session.execute(
                    sa.delete(model).where(condition),
                    execution_options={'synchronize_session': False},
                )
        self.arqs = self.devices = 0

    def _insert(self, model: type[models.Base], rows: Iterable[Row]) -> None:
        rows, now = iter(rows), clock.now()
        while batch := [{'created_at': now} | row for row in itertools.islice(rows, BATCH)]:
            with self._db.writer() as session:
                session.connection().execute(sa.insert(model.__table__), batch)

    def _arq(self, n: int) -> Row:
        return {
            'id': self.OFFSET + n,
            'uuid': _uuid('arq', n),
            'state': 'Bound',
            'device_profile_id': self._profile,
            'device_profile_group_id': 0,
            'profile_group': {'resources:FPGA': '1'},
            'project_id': _project(n),
            'hostname': _host(n),
            'device_rp_uuid': _uuid('rp', n // HANDLES),
            'instance_uuid': _uuid('instance', n),
        }

    def _device(self, n: int) -> Row:
        return {
            'id': self.OFFSET + n,
            'hostname': _host(n * HANDLES),
            'key': f'card{n}',
            'type': 'FPGA',
            'vendor': '8086',
            'model': 'Stored',
            'driver_name': 'fake_driver',
            'std_board_info': {'product_id': '09c4', 'numa_node': '0'},
            'vendor_board_info': {'serial': f'S{n:08}'},
        }

    def _deployable(self, n: int) -> Row:
        return {
            'id': self.OFFSET + n,
            'device_id': self.OFFSET + n,
            'name': f'{_host(n * HANDLES)}_card{n}',
            'rp_uuid': _uuid('rp', n),
            'driver_name': 'fake',
            'num_accelerators': HANDLES,
            'resource_class': 'FPGA',
            'traits': ['CUSTOM_STORED'],
        }


def _uuid(kind: str, n: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f'{kind}{n}'))


def _host(n: int) -> str:
    """Return the name of a host; a host has eight devices."""
    return f'stored{n // HANDLES // 8}'


def _project(n: int) -> str:
    return f'project{n % 100}'


def _address(n: int, function: int) -> dict[str, str]:
    return {
        'domain': f'{n >> 8:04x}',
        'bus': f'{n & 255:02x}',
        'device': f'{function // 8:02x}',
        'function': str(function % 8),
    }
