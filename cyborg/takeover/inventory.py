# SPDX-License-Identifier: Apache-2.0
"""Imports the devices of the upstream service, with their deployables."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable

import sqlalchemy as sa
from oslo_utils import uuidutils

from cyborg import objects
from cyborg.conductor.engine import imported
from cyborg.db.sqlalchemy import attributes, imported_rows, models
from cyborg.takeover import source
from cyborg.takeover.import_run import ImportRun, stamps
from cyborg.takeover.source import Row

TRAIT = re.compile(r'traits?\d*')
#: states of a device there in which its free handles must not be given out
DOUBTFUL = frozenset({'pending_cleaning', 'cleaning', 'error'})

#: rows of ours, by the number of theirs; None: deleted since it was imported
Devices = dict[int, models.Device | None]
Deployables = dict[int, models.Deployable | None]


def import_devices(run: ImportRun) -> Devices:
    """Import the devices with their control paths; returns our rows."""
    found: Devices = {}
    paths: dict[int, list[Row]] = defaultdict(list)
    for row in run.content['controlpath_ids']:
        paths[row['device_id']].append(row)
    drivers = {row['device_id']: row['driver_name'] for row in run.content['deployables']}
    places: dict[tuple[str, imported.Address], list[str]] = defaultdict(list)
    for row in run.content['devices']:
        is_there, mine = run.present('device', models.Device, row)
        if not is_there:
            mine = _device(run, row, paths[row['id']], drivers.get(row['id']))
        found[row['id']] = mine
        for info in (source.facts(path['cpid_info']) or {} for path in paths[row['id']]):
            for address in imported.addresses([info]):
                places[row['hostname'], address].append(row['uuid'])
    for (hostname, address), uuids in places.items():
        if len(uuids) > 1:
            run.note(
                f'Devices {", ".join(uuids)} are all at {_spelled(address)} of {hostname}: the '
                'first that its driver recognizes keeps its uuid, and gets the handles that '
                'requests hold of the others.'
            )
    return found


def _device(run: ImportRun, row: Row, paths: Iterable[Row], driver: str | None) -> models.Device:
    board = source.facts(row['std_board_info'])
    vendor_board = source.facts(row['vendor_board_info'])
    infos = [(path['cpid_type'], source.facts(path['cpid_info'])) for path in paths]
    status = row['status'] or objects.DeviceStatus.ENABLED
    if row['device_state'] in DOUBTFUL:
        status = objects.DeviceStatus.MAINTAINING
        run.note(
            f'Device {row["uuid"]} on {row["hostname"]} has the state {row["device_state"]} '
            'there, so it is imported disabled: enable it when nothing is wrong with it.'
        )
    mine = models.Device(
        uuid=row['uuid'],
        hostname=row['hostname'],
        key=f'{imported.PREFIX}{row["uuid"]}',
        type=row['type'],
        vendor=row['vendor'],
        model=row['model'],
        driver_name=driver or '',
        std_board_info=board if board is not None else {'info': row['std_board_info']},
        vendor_board_info=vendor_board
        if vendor_board is not None
        else {'info': row['vendor_board_info']},
        status=status,
        is_imported=True,
        control_paths=[models.ControlPath(type=kind, info=info) for kind, info in infos if info],
        **stamps(row),
    )
    if not any(True for _ in imported.addresses(info for _, info in infos if info)):
        run.note(
            f'Device {row["uuid"]} on {row["hostname"]} has no PCI address: its driver '
            'recognizes it by the addresses of its handles alone.'
        )
    run.session.add(mine)
    run.record('device', row['uuid'])
    run.outcome.devices.append(
        {
            'uuid': row['uuid'],
            'host': row['hostname'],
            'type': row['type'],
            'vendor': row['vendor'],
            'address': ', '.join(
                map(_spelled, imported.addresses(info for _, info in infos if info))
            ),
            'status': str(status),
        }
    )
    return mine


def import_deployables(run: ImportRun, devices: Devices, held: Collection[int]) -> Deployables:
    """Import the deployables with their attributes; returns our rows.

    ``held``: the handles that requests hold when this import ends. A deployable of such a handle is
    imported again if it is gone: a driver may divide the card in another way, but the server has
    an allocation of the provider.
    """
    found: Deployables = {}
    needed = {row['deployable_id'] for row in run.content['attach_handles'] if row['id'] in held}
    described: dict[int, list[Row]] = defaultdict(list)
    for row in run.content['attributes']:
        described[row['deployable_id']].append(row)
    rows = run.content['deployables']
    providers = {part.rp_uuid: part for part in run.session.scalars(sa.select(models.Deployable))}
    for row in rows:
        is_there, mine = run.present('deployable', models.Deployable, row)
        if not is_there or (mine is None and row['id'] in needed):
            mine = _deployable(
                run, row, devices.get(row['device_id']), described[row['id']], providers
            )
        found[row['id']] = mine
        if mine is not None:
            providers[mine.rp_uuid] = mine
    for row in rows:
        mine = found[row['id']]
        if mine is not None and mine.uuid == row['uuid'] and mine.is_imported:
            mine.parent = _above(found, mine, row['parent_id'])
            mine.root = _above(found, mine, row['root_id'])
    return found


def _above(
    found: Deployables, mine: models.Deployable, theirs: int | None
) -> models.Deployable | None:
    above = None if theirs is None else found.get(theirs)
    return None if above is mine else above


def _deployable(
    run: ImportRun,
    row: Row,
    device: models.Device | None,
    described: Iterable[Row],
    providers: dict[str, models.Deployable],
) -> models.Deployable | None:
    if device is None:
        run.note(
            f'Deployable {row["uuid"]} is left out: its device was imported before, and is '
            'gone since.'
        )
        return None
    provider = row['rp_uuid'] or uuidutils.generate_uuid()
    name = row['name'][: imported.LONGEST_NAME]
    # a name is that of a provider in Placement, which has no two of the same name
    same = providers.get(provider) or next(
        (part for part in device.deployables if part.name == name), None
    )
    if same is not None:
        run.record('deployable', row['uuid'], merged_into=same.uuid)
        run.note(
            f'Deployables {same.uuid} and {row["uuid"]} are the same resource provider, '
            f'{provider}: they become {same.uuid}, with the handles of both.'
        )
        return same
    run.record('deployable', row['uuid'])
    mine = models.Deployable(
        uuid=row['uuid'],
        device=device,
        name=name,
        rp_uuid=provider,
        driver_name=row['driver_name'] or '',
        bitstream_id=row['bitstream_id'],
        num_accelerators=row['num_accelerators'],
        is_imported=True,
        **stamps(row),
    )
    run.session.add(mine)
    _describe(mine, described)
    if row['rp_uuid']:
        run.record(imported_rows.PROVIDER, provider, hostname=device.hostname)
    run.outcome.deployables.append(
        {
            'uuid': row['uuid'],
            'name': row['name'],
            'host': device.hostname,
            'provider': row['rp_uuid'],
            'resource_class': mine.resource_class,
            'traits': mine.traits,
        }
    )
    return mine


def _describe(mine: models.Deployable, rows: Iterable[Row]) -> None:
    """Store the attributes of a deployable, of which some are its class and its traits."""
    rows = list(rows)
    told = objects.Deployable(
        name=mine.name,
        resource_class=next((row['value'] for row in rows if row['key'] == 'rc'), None),
        traits=[row['value'] for row in rows if TRAIT.fullmatch(row['key'])],
        attributes=[
            objects.Attribute(key=row['key'][:255], value=row['value'])
            for row in rows
            if row['key'] != 'rc' and not TRAIT.fullmatch(row['key'])
        ],
    )
    mine.resource_class, mine.traits = told.resource_class, told.traits
    attributes.update(mine, attributes.told(told))


def _spelled(address: imported.Address) -> str:
    """Returns an address as lspci writes it."""
    domain, bus, device, function = address
    return f'{domain:04x}:{bus:02x}:{device:02x}.{function:x}'
