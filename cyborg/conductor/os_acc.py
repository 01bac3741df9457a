# SPDX-License-Identifier: Apache-2.0
"""The endpoint for os_acc: nova-compute's plug and unplug use the same engine as REST."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor import flavors, server_images
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import arqs, matching, tasks
from cyborg.conductor.engine.limits import Allowance
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import agents, deployables, device_profiles
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.objects import arq_states

LOG = log.getLogger(__name__)

#: ``image_request`` for a server whose image asks for no bitstream
NOTHING: dict[str, str] = {}


class OsAcc(Endpoint):
    @exposed
    def plug_instance(
        self,
        context: RequestContext,
        hostname: str,
        instance: dict[str, str],
        providers: dict[str, Any],
        extra_specs: dict[str, str],
        image_request: dict[str, str] | None = NOTHING,
    ) -> list[objects.Arq]:
        """Create and bind the requests of a flavor and of the server's image, and return them.

        ``image_request`` is the bitstream that the server's image asks for, in the form of a
        task's image. None: Glance was not asked yet; raises ServerImageUnread if it must be.

        A repeated call returns the requests of the first one. If their bind has failed, it returns
        them with the reasons until unplug_instance deletes them. Handles of the instance on other
        hosts are released.
        """
        allowance = self.allowance(instance.get('project_id'))
        with self.unit_of_work(context, f'os_acc {hostname}') as unit:
            # a repeated plug waits here for the first one, which may still be in progress
            agents.lock(unit.session, hostname)
            rows = arqs_db.of_instance(unit.session, instance['uuid'])
            here = [row for row in rows if row.hostname == hostname]
            if failed := [row for row in here if row.state == arq_states.State.BIND_FAILED]:
                return [
                    objects.Arq(uuid=row.uuid, state=row.state, reason=row.reason) for row in failed
                ]
            mine = {'instance_uuid': instance['uuid'], 'hostname': hostname}
            if here:
                found = arqs_db.find(unit.session, self.scope(context), mine, {})
                self._require_same(unit.session, instance, found, providers, extra_specs)
                return found
            elsewhere = {row.hostname for row in rows if row.state in arq_states.HOLDING}
            arqs.delete_rows(unit, rows, f'Its server was plugged on host {hostname}.')
            created, chosen = self._create(
                unit, instance, providers, extra_specs, image_request, allowance
            )
            self._bind(unit, context, hostname, instance, created, chosen)
            bound = arqs_db.find(unit.session, self.scope(context), mine, {})
        if elsewhere:
            LOG.warning(
                'Instance %s (%s) is plugged on %s: its handles on %s are released.',
                instance.get('name'),
                instance['uuid'],
                hostname,
                ', '.join(sorted(map(str, elsewhere))),
            )
        return bound

    def _bind(
        self,
        unit: UnitOfWork,
        context: RequestContext,
        hostname: str,
        instance: dict[str, str],
        created: Sequence[objects.Arq],
        chosen: Sequence[str],
    ) -> None:
        """Bind requests, each to the provider that was chosen for it."""
        bindings = [
            objects.Binding(
                arq_uuid=arq.uuid,
                hostname=hostname,
                instance_uuid=instance['uuid'],
                device_rp_uuid=provider,
                project_id=instance.get('project_id'),
            )
            for arq, provider in zip(created, chosen, strict=True)
        ]
        arqs.bind(unit, self.scope(context), bindings, self.deadlines(), idle=())

    def _create(
        self,
        unit: UnitOfWork,
        instance: dict[str, str],
        providers: dict[str, Any],
        extra_specs: dict[str, str],
        image_request: dict[str, str] | None,
        allowance: Allowance,
    ) -> tuple[list[objects.Arq], list[str]]:
        """Create the requests; returns them, and the provider that was chosen for each."""
        project, profile = instance.get('project_id'), None
        if name := extra_specs.get(flavors.PROFILE_KEY):
            # as in REST, a profile of other projects is not found
            profile = device_profiles.named(unit.session, name, audience=project or '')
            # only the profile, not the flavor, may ask for work at the bind
            matching.require_honoured('The flavor', extra_specs, done=[flavors.PROFILE_KEY])
            wanted = [
                flavors.WantedGroup(group, _provider(providers, index))
                for index, group in enumerate(profile.groups)
            ]
        else:
            wanted = self._wanted(unit.session, providers, extra_specs)
        wanted = self._as_image_asks(unit.session, instance, wanted, image_request)
        groups = [each.group for each in wanted]
        created = arqs.create(unit, groups, project, profile, allowance)
        return created, [wanted[arq.device_profile_group_id].provider for arq in created]

    def _as_image_asks(
        self,
        session: Any,
        instance: dict[str, str],
        wanted: list[flavors.WantedGroup],
        image_request: dict[str, str] | None,
    ) -> list[flavors.WantedGroup]:
        """Returns the groups with the bitstream that the server's image asks for. The image is
        needed only if one of the providers can be programmed."""
        image = instance.get('image_uuid')
        if not image or image_request == NOTHING:
            return wanted
        chosen = sorted({each.provider for each in wanted})
        programmable = {
            each.rp_uuid
            for each in deployables.find(session, {'rp_uuid': chosen}, {})
            if each.is_programmable
        }
        if not programmable:
            return wanted
        if image_request is None:
            raise errors.ServerImageUnread(image=image)
        return server_images.followed(wanted, image_request, programmable, image)

    def _wanted(
        self,
        session: Any,
        providers: dict[str, Any],
        extra_specs: dict[str, str],
        known: Mapping[str, str] | None = None,
    ) -> list[flavors.WantedGroup]:
        """Returns the groups of a flavor without a profile. ``known`` are the resource classes of
        providers that may have been deleted since."""
        found = deployables.find(
            session, {'rp_uuid': sorted(flavors.named_providers(providers))}, {}
        )
        classes = {each.rp_uuid: each.resource_class for each in found if each.resource_class}
        return flavors.wanted(
            extra_specs, providers, {**(known or {}), **classes}, self.conf.api.extra_accel_keys
        )

    def _require_same(
        self,
        session: Any,
        instance: dict[str, str],
        found: Sequence[objects.Arq],
        providers: dict[str, Any],
        extra_specs: dict[str, str],
    ) -> None:
        """Raises AlreadyPlugged unless the requests of the instance are those that this plug asks
        for.

        A profile is compared by its name, because its requests keep the groups that it had when
        they were created. A flavor that names no image accepts any loaded image, which may be the
        one that the server's image asked for.
        """
        name = extra_specs.get(flavors.PROFILE_KEY)
        is_same = {arq.device_profile_name for arq in found} == {name}
        try:
            if is_same and name:
                is_same = all(
                    arq.device_rp_uuid == _provider(providers, arq.device_profile_group_id)
                    for arq in found
                )
            elif is_same:
                known = {str(arq.device_rp_uuid): flavors.class_of(arq.group) for arq in found}
                wanted = self._wanted(session, providers, extra_specs, known)
                is_same = Counter(_held(arq, wanted) for arq in found) == Counter(
                    {
                        _key(index, each.group, each.provider): arqs_db.units(each.group)
                        for index, each in enumerate(wanted)
                    }
                )
        except (errors.BadRequest, errors.InvalidFlavor):
            is_same = False
        if not is_same:
            held = {
                f'device profile {arq.device_profile_name}'
                if arq.device_profile_name
                else ' '.join(f'{key}={value}' for key, value in sorted(arq.group.items()))
                for arq in found
            }
            raise errors.AlreadyPlugged(
                instance=instance['uuid'], host=found[0].hostname, held=', '.join(sorted(held))
            )

    @exposed
    def unplug_instance(self, context: RequestContext, hostname: str, instance_uuid: str) -> int:
        """Delete the requests of a server on this host; returns how many of them held a handle.
        Requests whose bind has failed hold none."""
        with self.unit_of_work(context, f'os_acc {hostname}') as unit:
            rows = arqs_db.of_instance(unit.session, instance_uuid, hostname)
            held = sum(row.state in arq_states.HOLDING for row in rows)
            arqs.delete_rows(unit, rows)
            return held


def _held(arq: objects.Arq, wanted: Sequence[flavors.WantedGroup]) -> tuple[object, ...]:
    """Returns the ``_key`` of a request, with its image only if the group of the flavor names an
    image."""
    index, group = arq.device_profile_group_id, dict(arq.group)
    if index < len(wanted) and not tasks.image_of(wanted[index].group):
        group = {key: value for key, value in group.items() if key not in tasks.IMAGE_PROPERTIES}
    return _key(index, group, arq.device_rp_uuid)


def _key(index: int, group: Mapping[str, str], provider: str | None) -> tuple[object, ...]:
    """Returns a key that is equal for requests of equal groups to the same provider."""
    return index, frozenset(group.items()), provider


def _provider(providers: dict[str, Any], index: int) -> str:
    """Returns the provider that was chosen for a group of a profile."""
    requester = f'device_profile_{index}'
    chosen = flavors.providers_of(providers, requester)
    if not chosen:
        raise errors.BadRequest(
            f'selected_rp names no resource provider for {requester}: give "uuid" for all '
            f'groups, or one entry for each group.'
        )
    return chosen[0]
