# SPDX-License-Identifier: Apache-2.0
"""Imports the rows of the upstream service into our database, in the transaction of a unit.

A row is imported once: its uuid is recorded, so that a second import adds only what is new. What
cannot be imported as it is becomes a note. A bound request is imported in any case.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from oslo_utils import uuidutils

from cyborg import objects
from cyborg.conductor.engine import imported
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.db.sqlalchemy import agents, attributes, clock, imported_rows, models
from cyborg.objects import TaskKind, TaskState, Withheld, profile_groups
from cyborg.objects.arq_states import Event, State
from cyborg.takeover import profiles, source
from cyborg.takeover.source import Content, Row

REASON = 'Imported from the database of another service.'
TRAIT = re.compile(r'traits?\d*')
#: states of a device there in which its free handles must not be given out
DOUBTFUL = frozenset({'pending_cleaning', 'cleaning', 'error'})


@dataclass
class Outcome:
    """What an import adds, one line for each row, and what an operator must know."""

    profiles: list[dict[str, Any]] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    deployables: list[dict[str, Any]] = field(default_factory=list)
    handles: list[dict[str, Any]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        return {
            name: len(getattr(self, name))
            for name in ('profiles', 'devices', 'deployables', 'handles', 'requests')
        }


class Importer:
    def __init__(
        self,
        unit: UnitOfWork,
        content: Content,
        rename: profiles.Rename,
        extra_keys: Collection[str] = (),
    ) -> None:
        self.unit, self.session, self.content = unit, unit.session, content
        self.rename, self.extra_keys = rename, extra_keys
        self.outcome = Outcome()
        self.known = imported_rows.known(unit.session)
        #: kind -> what we have, by uuid
        self._ours: dict[str, dict[str, Any]] = {}
        #: rows of ours, by the number of theirs; None: deleted since it was imported
        self.profiles: dict[int, models.DeviceProfile | None] = {}
        self.devices: dict[int, models.Device | None] = {}
        self.deployables: dict[int, models.Deployable | None] = {}
        self.handles: dict[int, models.AttachHandle | None] = {}
        self.attributes: dict[int, list[Row]] = defaultdict(list)
        for row in content['attributes']:
            self.attributes[row['deployable_id']].append(row)

    def run(self) -> Outcome:
        with self.session.no_autoflush:  # rows are complete only at the end
            self._import_profiles()
            self._import_devices()
            self._import_deployables()
            self._import_handles()
            self._import_requests()
        self.session.flush()
        agents.distrust(self.session, {each['host'] for each in self.outcome.devices})
        self._note_waiting()
        return self.outcome

    # -- what is imported already ----------------------------------------------------------

    def _present(self, kind: str, model: type[Any], row: Row) -> tuple[bool, Any]:
        """Returns whether a row was imported before, or is there already, and our row."""
        if kind not in self._ours:
            rows = self.session.scalars(sa.select(model))
            self._ours[kind] = {mine.uuid: mine for mine in rows}
        mine = self._ours[kind].get(row['uuid'])
        return (kind, row['uuid']) in self.known or mine is not None, mine

    def _record(
        self, kind: str, uuid: str, hostname: str | None = None, state: str | None = None
    ) -> None:
        if (kind, uuid) not in self.known:
            row = models.ImportedRow(kind=kind, uuid=uuid, hostname=hostname, state=state)
            self.known[kind, uuid] = row
            self.session.add(row)

    def _note(self, sentence: str) -> None:
        self.outcome.notes.append(sentence)

    # -- profiles --------------------------------------------------------------------------

    def _import_profiles(self) -> None:
        taken = {
            row.name: row for row in self.session.scalars(sa.select(models.DeviceProfile)).all()
        }
        for row in self.content['device_profiles']:
            is_there, mine = self._present('profile', models.DeviceProfile, row)
            if not is_there:
                mine = self._profile(row, taken)
                taken[mine.name] = mine
            self.profiles[row['id']] = mine

    def _profile(self, row: Row, taken: dict[str, models.DeviceProfile]) -> models.DeviceProfile:
        groups, why = self._groups(row)
        same = taken.get(row['name'])
        self._record('profile', row['uuid'])
        if same is not None and same.groups == groups:
            self._note(
                f'Device profile {row["name"]} ({row["uuid"]}) is here already as {same.uuid}, '
                'with the same groups: its requests get that one.'
            )
            return same
        name = profiles.name_for(row['name'], row['uuid'], taken)
        if name != row['name']:
            self._note(
                f'Device profile {row["name"]!r} ({row["uuid"]}) becomes {name}: '
                f'{profiles.NAME_RULE}. Change the flavors that name it.'
            )
        if why:
            self._note(
                f'Device profile {name} ({row["uuid"]}) is imported as it is and disabled, since '
                f'its groups are not valid here: {why}'
            )
        mine = models.DeviceProfile(
            uuid=row['uuid'],
            name=name,
            description=row['description'],
            groups=groups,
            is_enabled=not why,
            **_stamps(row),
        )
        self.session.add(mine)
        self.outcome.profiles.append(
            {
                'uuid': row['uuid'],
                'name': row['name'],
                'imported_as': name,
                'groups': groups,
                'enabled': not why,
            }
        )
        return mine

    def _groups(self, row: Row) -> tuple[list[profiles.Group], str | None]:
        """Returns the groups as they are imported, and why they are not valid."""
        try:
            groups = profiles.as_text(profiles.groups_of(row['profile_json']))
        except ValueError as error:
            return [], str(error)
        try:
            new = self.rename(profiles.renamed(groups, self._offered()))
            new = profile_groups.normalize(new, self.extra_keys)
        except ValueError as error:
            return groups, str(error)
        for number, (before, after) in enumerate(zip(groups, new, strict=True)):
            if changed := [key for key in before if key not in after]:
                self._note(
                    f'Device profile {row["name"]} ({row["uuid"]}), group {number}: '
                    f'{", ".join(changed)} becomes '
                    f'{", ".join(key for key in after if key not in before)}.'
                )
        return new, None

    def _offered(self) -> set[str]:
        return {row['value'] for row in self.content['attributes'] if row['key'] == 'rc'}

    # -- devices ---------------------------------------------------------------------------

    def _import_devices(self) -> None:
        paths: dict[int, list[Row]] = defaultdict(list)
        for row in self.content['controlpath_ids']:
            paths[row['device_id']].append(row)
        drivers = {row['device_id']: row['driver_name'] for row in self.content['deployables']}
        places: dict[tuple[str, imported.Address], list[str]] = defaultdict(list)
        for row in self.content['devices']:
            is_there, mine = self._present('device', models.Device, row)
            if not is_there:
                mine = self._device(row, paths[row['id']], drivers.get(row['id']))
            self.devices[row['id']] = mine
            for info in (source.facts(path['cpid_info']) or {} for path in paths[row['id']]):
                for address in imported.addresses([info]):
                    places[row['hostname'], address].append(row['uuid'])
        for (hostname, address), uuids in places.items():
            if len(uuids) > 1:
                self._note(
                    f'Devices {", ".join(uuids)} are all at {_spelled(address)} of {hostname}: the '
                    'first that its driver recognizes keeps its uuid, and gets the handles that '
                    'requests hold of the others.'
                )

    def _device(self, row: Row, paths: Iterable[Row], driver: str | None) -> models.Device:
        board = source.facts(row['std_board_info'])
        vendor_board = source.facts(row['vendor_board_info'])
        infos = [(path['cpid_type'], source.facts(path['cpid_info'])) for path in paths]
        status = row['status'] or objects.DeviceStatus.ENABLED
        if row['device_state'] in DOUBTFUL:
            status = objects.DeviceStatus.MAINTAINING
            self._note(
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
            control_paths=[
                models.ControlPath(type=kind, info=info) for kind, info in infos if info
            ],
            **_stamps(row),
        )
        if not any(True for _ in imported.addresses(info for _, info in infos if info)):
            self._note(
                f'Device {row["uuid"]} on {row["hostname"]} has no PCI address: its driver '
                'recognizes it by the addresses of its handles alone.'
            )
        self.session.add(mine)
        self._record('device', row['uuid'])
        self.outcome.devices.append(
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

    # -- deployables -----------------------------------------------------------------------

    def _import_deployables(self) -> None:
        rows = self.content['deployables']
        providers = {
            part.rp_uuid: part for part in self.session.scalars(sa.select(models.Deployable))
        }
        for row in rows:
            is_there, mine = self._present('deployable', models.Deployable, row)
            if not is_there:
                mine = self._deployable(row, providers)
            self.deployables[row['id']] = mine
            if mine is not None:
                providers[mine.rp_uuid] = mine
        for row in rows:
            mine = self.deployables[row['id']]
            if mine is not None and mine.uuid == row['uuid'] and mine.is_imported:
                mine.parent = self._above(mine, row['parent_id'])
                mine.root = self._above(mine, row['root_id'])

    def _above(self, mine: models.Deployable, theirs: int | None) -> models.Deployable | None:
        above = None if theirs is None else self.deployables.get(theirs)
        return None if above is mine else above

    def _deployable(
        self, row: Row, providers: dict[str, models.Deployable]
    ) -> models.Deployable | None:
        device = self.devices.get(row['device_id'])
        if device is None:
            self._note(
                f'Deployable {row["uuid"]} is left out: its device was imported before, and is '
                'gone since.'
            )
            return None
        self._record('deployable', row['uuid'])
        provider = row['rp_uuid'] or uuidutils.generate_uuid()
        same = providers.get(provider)
        if same is not None:
            self._note(
                f'Deployables {same.uuid} and {row["uuid"]} are the same resource provider, '
                f'{provider}: they become {same.uuid}, with the handles of both.'
            )
            return same
        mine = models.Deployable(
            uuid=row['uuid'],
            device=device,
            name=row['name'][: imported.LONGEST_NAME],
            rp_uuid=provider,
            driver_name=row['driver_name'] or '',
            bitstream_id=row['bitstream_id'],
            num_accelerators=row['num_accelerators'],
            is_imported=True,
            **_stamps(row),
        )
        self.session.add(mine)
        self._describe(mine, self.attributes[row['id']])
        if row['rp_uuid']:
            self._record(imported_rows.PROVIDER, provider, device.hostname)
        self.outcome.deployables.append(
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

    @staticmethod
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

    # -- handles ---------------------------------------------------------------------------

    def _import_handles(self) -> None:
        held = {row['attach_handle_id'] for row in self.content['extended_accelerator_requests']}
        for row in self.content['attach_handles']:
            is_there, mine = self._present('handle', models.AttachHandle, row)
            if not is_there:
                mine = self._handle(row, row['id'] in held)
            self.handles[row['id']] = mine

    def _handle(self, row: Row, is_held: bool) -> models.AttachHandle | None:
        part = self.deployables.get(row['deployable_id'])
        if part is None:
            self._note(f'Attach handle {row["uuid"]} is left out: its deployable is gone.')
            return None
        info = source.facts(row['attach_info'])
        if info is None:
            info = {}
            self._note(
                f'The info of attach handle {row["uuid"]} is not JSON: no driver will recognize '
                'it, so it is kept only as long as a request holds it.'
            )
        mine = models.AttachHandle(
            uuid=row['uuid'],
            deployable=part,
            key=f'{imported.PREFIX}{row["uuid"]}',
            type=row['attach_type'],
            info=info,
            is_host_prepared=row['attach_type'] == objects.HandleType.MDEV,
            generation=0,
            **_stamps(row),
        )
        self.session.add(mine)
        self._record('handle', row['uuid'])
        self.outcome.handles.append(
            {
                'uuid': row['uuid'],
                'deployable': part.uuid,
                'type': row['attach_type'],
                'info': info,
                'held': is_held,
            }
        )
        if row['in_use'] and not is_held:
            self._quarantine(mine, part)
        return mine

    def _quarantine(self, handle: models.AttachHandle, part: models.Deployable) -> None:
        why = 'The upstream service marked it as in use, and no request holds it.'
        handle.withheld = Withheld.QUARANTINED
        self.session.add(
            models.Task(
                kind=TaskKind.CLEAN,
                state=TaskState.QUARANTINED,
                hostname=part.device.hostname,
                device_uuid=part.device.uuid,
                deployable_uuid=part.uuid,
                handle_uuid=handle.uuid,
                attempts=1,
                error=why,
                finished_at=clock.now(),
            )
        )
        self._note(
            f'Attach handle {handle.uuid} on {part.device.hostname} is marked as in use, but no '
            'request holds it: it is quarantined. When no server uses it, run cyborg-manage '
            f'handle clean {handle.uuid}.'
        )

    # -- requests --------------------------------------------------------------------------

    def _import_requests(self) -> None:
        for row in self.content['extended_accelerator_requests']:
            is_there, mine = self._present('request', models.ExtArq, row)
            if is_there:
                self._compare(row, mine)
            else:
                self._request(row)

    def _compare(self, row: Row, mine: models.ExtArq | None) -> None:
        """Note that a request has changed there since it was imported."""
        before = self.known.get(('request', row['uuid']))
        if before is not None and before.state != row['state'] and mine is not None:
            self._note(
                f'Request {row["uuid"]} was {before.state} when it was imported, and is '
                f'{row["state"]} in the upstream database now; here it stays {mine.state}. Only '
                'one of the services may run.'
            )

    def _request(self, row: Row) -> None:
        state, reason = _state(row)
        self._record('request', row['uuid'], state=row['state'])
        if state is None:
            self._note(f'Request {row["uuid"]} is left out: {reason}')
            return
        if reason:
            self._note(f'Request {row["uuid"]} becomes {state}: {reason}')
        profile = self.profiles.get(row['device_profile_id'])
        mine = models.ExtArq(
            uuid=row['uuid'],
            state=state,
            device_profile=profile,
            device_profile_name=profile.name if profile else None,
            device_profile_group_id=row['device_profile_group_id'],
            group=self._group(row, profile),
            project_id=row['project_id'],
            reason=reason,
            **_stamps(row),
        )
        if state == State.BOUND:
            mine.hostname, mine.instance_uuid = row['hostname'], row['instance_uuid']
            mine.device_rp_uuid = row['device_rp_uuid']
        self.session.add(mine)
        handle = self._take(row, mine) if state == State.BOUND else None
        self.unit.step(mine, Event.CREATE, None, state, REASON)
        self.outcome.requests.append(
            {
                'uuid': row['uuid'],
                'state': row['state'],
                'imported_as': str(state),
                'profile': profile.name if profile else None,
                'server': mine.instance_uuid,
                'host': mine.hostname,
                'handle': handle.uuid if handle else None,
            }
        )

    def _group(self, row: Row, profile: models.DeviceProfile | None) -> profiles.Group:
        groups = profile.groups if profile is not None else []
        number = row['device_profile_group_id']
        if 0 <= number < len(groups):
            return groups[number]
        self._note(
            f'The device profile of request {row["uuid"]} has no group {number}: what the request '
            'asked for is not known here.'
        )
        return {}

    def _take(self, row: Row, mine: models.ExtArq) -> models.AttachHandle | None:
        """Have a bound request hold its handle."""
        handle = self.handles.get(row['attach_handle_id'])
        if handle is None:
            self._note(
                f'Request {row["uuid"]} is bound to server {row["instance_uuid"]} without an '
                'attach handle: it is imported, but Nova cannot start that server again.'
            )
            return None
        if handle.arq is not None:
            self._note(
                f'Requests {handle.arq.uuid} and {row["uuid"]} both hold attach handle '
                f'{handle.uuid}: the first keeps it, and the other is imported without one.'
            )
            return None
        handle.arq = mine
        handle.generation += 1
        return handle

    # -- afterwards ------------------------------------------------------------------------

    def _note_waiting(self) -> None:
        """Note what earlier imports brought and drivers have not found since."""
        new = {each['uuid'] for each in self.outcome.devices}
        for device in self.session.scalars(
            sa.select(models.Device).where(models.Device.is_imported).order_by(models.Device.id)
        ):
            if device.uuid not in new:
                self._note(
                    f'No driver has reported imported device {device.uuid} on {device.hostname} '
                    f'({device.type}, vendor {device.vendor}) yet: start the agent there with its '
                    'driver in [agent] enabled_drivers.'
                )
        lost = sa.select(models.AttachHandle).where(
            models.AttachHandle.is_missing,
            models.AttachHandle.arq_id.is_not(None),
            models.AttachHandle.uuid.in_(sa.select(models.ImportedRow.uuid)),
        )
        for handle in self.session.scalars(lost):
            holder = handle.arq
            self._note(
                f'No driver reports attach handle {handle.uuid}, which request '
                f'{holder.uuid if holder else "?"} holds: the request keeps it, and the handle is '
                'not given out afterwards.'
            )


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
    return State(row['state']), None


def _stamps(row: Row) -> dict[str, Any]:
    return {
        'created_at': row['created_at'] or clock.now(),
        'updated_at': row['updated_at'],
    }


def _spelled(address: imported.Address) -> str:
    domain, bus, device, function = address
    return f'{domain:04x}:{bus:02x}:{device:02x}.{function:x}'
