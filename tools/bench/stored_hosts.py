# SPDX-License-Identifier: Apache-2.0
"""Inserts hosts with one card each in bulk: as rows of Cyborg and as providers of Placement."""

import datetime
import itertools
import uuid
from collections.abc import Iterable
from typing import Any, Self

import os_traits
import sqlalchemy as sa
from placement.db.sqlalchemy import models as providers
from sqlalchemy import orm

from cyborg.db.sqlalchemy import clock, engine, models

#: rows per INSERT
BATCH = 2_000
#: units of a card
UNITS = 8
#: ids of inserted rows are above this one, so that they do not collide with those of services
OFFSET = 5_000_000
RESOURCE_CLASS, TRAIT = 'FPGA', 'CUSTOM_STORED_HOST'
#: hosts do not become silent during a measurement
UNTIL = datetime.timedelta(days=1)

Row = dict[str, Any]


class StoredHosts:
    """Of ten hosts one is in use, one half in use, one disabled by an administrator, and six are
    free. The compute service of the last one is disabled."""

    def __init__(self, database: str, placement: str) -> None:
        """``placement``: the URL of Placement's database."""
        self._db = engine.Database(database)
        self._placement = sa.create_engine(placement)
        self.count = 0

    def __enter__(self) -> Self:
        with orm.Session(self._placement) as session:
            session.add(providers.Trait(name=TRAIT))
            session.commit()
            traits = {row.name: row.id for row in session.query(providers.Trait)}
            self._trait, self._owner, self._disabled = (
                traits[name]
                for name in (TRAIT, os_traits.OWNER_CYBORG, os_traits.COMPUTE_STATUS_DISABLED)
            )
            self._class = session.scalars(
                sa.select(providers.ResourceClass.id).where(
                    providers.ResourceClass.name == RESOURCE_CLASS
                )
            ).one()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._clear()
        self._db.close()
        self._placement.dispose()

    def grow(self, count: int) -> None:
        """Insert rows until there are so many hosts."""
        numbers = range(self.count, count)
        self._insert_rows(numbers)
        self._insert_providers(numbers)
        self.count = count

    def _insert_rows(self, numbers: Iterable[int]) -> None:
        for model, make in (
            (models.Agent, _agent),
            (models.Device, _device),
            (models.Deployable, _deployable),
        ):
            self._insert(self._db.engine, model, map(make, numbers))
        units = [(n, unit) for n in numbers for unit in range(UNITS)]
        held = [(n, unit) for n, unit in units if unit < _held(n)]
        self._insert(self._db.engine, models.ExtArq, itertools.starmap(_arq, held))
        self._insert(self._db.engine, models.AttachHandle, itertools.starmap(_handle, units))

    def _insert_providers(self, numbers: Iterable[int]) -> None:
        traits = [(_card_id(n), trait) for n in numbers for trait in (self._trait, self._owner)]
        traits += [(_node_id(n), self._disabled) for n in numbers if n % 10 == 9]
        rows: dict[Any, Iterable[Row]] = {
            providers.ResourceProvider: itertools.chain.from_iterable(map(_providers, numbers)),
            providers.ResourceProviderTrait: (
                {'resource_provider_id': provider, 'trait_id': trait} for provider, trait in traits
            ),
            providers.Inventory: (self._inventory(n) for n in numbers),
            providers.Allocation: (
                {
                    'id': OFFSET + n * UNITS + unit,
                    'resource_provider_id': _card_id(n),
                    'consumer_id': _uuid('instance', n * UNITS + unit),
                    'resource_class_id': self._class,
                    'used': 1,
                }
                for n in numbers
                for unit in range(_held(n))
            ),
        }
        for model, made in rows.items():
            self._insert(self._placement, model, made)

    def _inventory(self, n: int) -> Row:
        return {
            'id': OFFSET + n,
            'resource_provider_id': _card_id(n),
            'resource_class_id': self._class,
            'total': UNITS,
            'reserved': UNITS if _is_disabled(n) else 0,
            'min_unit': 1,
            'max_unit': UNITS,
            'step_size': 1,
            'allocation_ratio': 1.0,
        }

    def _insert(self, database: sa.Engine, model: Any, rows: Iterable[Row]) -> None:
        rows, now = iter(rows), clock.now()
        while batch := [{'created_at': now} | row for row in itertools.islice(rows, BATCH)]:
            with database.begin() as connection:
                connection.execute(sa.insert(model.__table__), batch)

    def _clear(self) -> None:
        for model in (
            models.AttachHandle,
            models.ExtArq,
            models.Deployable,
            models.Device,
            models.Agent,
        ):
            with self._db.engine.begin() as connection:
                connection.execute(sa.delete(model.__table__).where(model.id >= OFFSET))
        with self._placement.begin() as connection:
            for column in (
                providers.Allocation.resource_provider_id,
                providers.Inventory.resource_provider_id,
                providers.ResourceProviderTrait.resource_provider_id,
                providers.ResourceProvider.id,
            ):
                connection.execute(sa.delete(column.class_.__table__).where(column >= OFFSET))
            connection.execute(
                sa.delete(providers.Trait.__table__).where(providers.Trait.name == TRAIT)
            )
        self.count = 0


def _held(n: int) -> int:
    """Return how many units of a host are in use."""
    return {0: UNITS, 1: UNITS // 2}.get(n % 10, 0)


def _is_disabled(n: int) -> bool:
    return n % 10 == 2


def _agent(n: int) -> Row:
    return {
        'id': OFFSET + n,
        'uuid': _uuid('agent', n),
        'hostname': _host(n),
        'last_heartbeat': clock.now() + UNTIL,
        'sequence': 1,
        'digest': '1',
        'is_ready': True,
        'drivers': [],
        'conflicts': {},
    }


def _device(n: int) -> Row:
    return {
        'id': OFFSET + n,
        'uuid': _uuid('device', n),
        'hostname': _host(n),
        'key': 'card',
        'type': 'FPGA',
        'vendor': '8086',
        'model': 'Stored',
        'driver_name': 'fake_driver',
        'std_board_info': {},
        'vendor_board_info': {},
        'status': 'maintaining' if _is_disabled(n) else 'enabled',
    }


def _deployable(n: int) -> Row:
    return {
        'id': OFFSET + n,
        'device_id': OFFSET + n,
        'name': f'{_host(n)}_card',
        'rp_uuid': _uuid('card', n),
        'driver_name': 'fake',
        'num_accelerators': UNITS,
        'resource_class': RESOURCE_CLASS,
        'traits': [TRAIT],
    }


def _arq(n: int, unit: int) -> Row:
    return {
        'id': OFFSET + n * UNITS + unit,
        'uuid': _uuid('arq', n * UNITS + unit),
        'state': 'Bound',
        'device_profile_group_id': 0,
        'profile_group': {f'resources:{RESOURCE_CLASS}': '1'},
        'project_id': 'stored',
        'hostname': _host(n),
        'device_rp_uuid': _uuid('card', n),
        'instance_uuid': _uuid('instance', n * UNITS + unit),
    }


def _handle(n: int, unit: int) -> Row:
    return {
        'id': OFFSET + n * UNITS + unit,
        'deployable_id': OFFSET + n,
        'key': str(unit),
        'type': 'PCI',
        'info': {'domain': '0000', 'bus': '3b', 'device': '00', 'function': str(unit)},
        'arq_id': OFFSET + n * UNITS + unit if unit < _held(n) else None,
    }


def _providers(n: int) -> list[Row]:
    """Return a compute node and its card."""
    node = {'id': _node_id(n), 'uuid': _uuid('node', n), 'name': _host(n), 'generation': 1}
    card = {'id': _card_id(n), 'uuid': _uuid('card', n), 'name': f'{_host(n)}_card'}
    return [
        node | {'root_provider_id': _node_id(n), 'parent_provider_id': None},
        card
        | {'generation': 1, 'root_provider_id': _node_id(n), 'parent_provider_id': _node_id(n)},
    ]


def _node_id(n: int) -> int:
    return OFFSET + 2 * n


def _card_id(n: int) -> int:
    return OFFSET + 2 * n + 1


def _host(n: int) -> str:
    return f'storedhost{n}'


def _uuid(kind: str, n: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f'stored host {kind}{n}'))
