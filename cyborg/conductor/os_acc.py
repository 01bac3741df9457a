# SPDX-License-Identifier: Apache-2.0
"""The second door: what nova-compute asks by os_acc ends in the same engine as Nova's REST."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor import flavors
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import arqs, matching
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import agents, deployables, device_profiles
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.objects import arq_states

LOG = log.getLogger(__name__)


class OsAcc(Endpoint):

    @exposed
    def plug_instance(self, context: RequestContext, hostname: str, instance: dict[str, str],
                      providers: dict[str, Any], extra_specs: dict[str, str],
                      ) -> list[objects.Arq]:
        """Create and bind what the flavor asks for.

        Returns what is bound if the same was asked before, and the requests of a failed attempt,
        with their reasons, as long as they are there: unplug_instance deletes them. What the
        instance holds on other hosts is released.
        """
        with self.unit_of_work(context, f'os_acc {hostname}') as unit:
            # a repeated plug waits for the first one, which may still be under way
            agents.lock(unit.session, hostname)
            rows = arqs_db.of_instance(unit.session, instance['uuid'])
            here = [row for row in rows if row.hostname == hostname]
            if failed := [row for row in here if row.state == arq_states.State.BIND_FAILED]:
                return [objects.Arq(uuid=row.uuid, state=row.state, reason=row.reason)
                        for row in failed]
            mine = {'instance_uuid': instance['uuid'], 'hostname': hostname}
            if here:
                found = arqs_db.find(unit.session, self.scope(context), mine, {})
                self._require_same(unit.session, instance, found, providers, extra_specs)
                return found
            elsewhere = {row.hostname for row in rows if row.state in arq_states.HOLDING}
            arqs.delete_rows(unit, rows, f'Its server was plugged on host {hostname}.')
            self._bind(unit, context, hostname, instance, providers, extra_specs)
            bound = arqs_db.find(unit.session, self.scope(context), mine, {})
        if elsewhere:
            LOG.warning('Instance %s (%s) is plugged on %s: what it held on %s is released.',
                        instance.get('name'), instance['uuid'], hostname,
                        ', '.join(sorted(map(str, elsewhere))))
        return bound

    def _bind(self, unit: UnitOfWork, context: RequestContext, hostname: str,
              instance: dict[str, str], providers: dict[str, Any],
              extra_specs: dict[str, str]) -> None:
        created, chosen = self._create(unit, instance, providers, extra_specs)
        bindings = [
            objects.Binding(arq_uuid=arq.uuid, hostname=hostname, instance_uuid=instance['uuid'],
                            device_rp_uuid=provider, project_id=instance.get('project_id'))
            for arq, provider in zip(created, chosen, strict=True)]
        arqs.bind(unit, self.scope(context), bindings, self.deadlines(), idle=())

    def _create(self, unit: UnitOfWork, instance: dict[str, str], providers: dict[str, Any],
                extra_specs: dict[str, str]) -> tuple[list[objects.Arq], list[str]]:
        """The requests, and the provider that was chosen for each."""
        project = instance.get('project_id')
        if name := extra_specs.get(flavors.PROFILE_KEY):
            # the same as REST: a profile of other projects is not told from one that is not there
            profile = device_profiles.named(unit.session, name, audience=project or '')
            # what is to be done with the devices is the profile's to say
            matching.require_honoured('The flavor', extra_specs, done=[flavors.PROFILE_KEY])
            created = arqs.create(unit, profile.groups, project, profile)
            return created, [_provider(providers, arq) for arq in created]
        wanted = self._wanted(unit.session, providers, extra_specs)
        matching.require_honoured('The flavor', extra_specs)
        created = arqs.create(unit, [each.group for each in wanted], project, None)
        return created, [wanted[arq.device_profile_group_id].provider for arq in created]

    def _wanted(self, session: Any, providers: dict[str, Any],
                extra_specs: dict[str, str],
                known: Mapping[str, str] | None = None) -> list[flavors.Wanted]:
        """What a flavor without a profile asks for; ``known`` are classes of providers that may
        have gone since."""
        found = deployables.find(
            session, {'rp_uuid': sorted(flavors.named_providers(providers))}, {})
        classes = {each.rp_uuid: each.resource_class for each in found if each.resource_class}
        return flavors.wanted(extra_specs, providers, {**(known or {}), **classes},
                              self.conf.api.extra_accel_keys)

    def _require_same(self, session: Any, instance: dict[str, str],
                      found: Sequence[objects.Arq], providers: dict[str, Any],
                      extra_specs: dict[str, str]) -> None:
        """AlreadyPlugged unless what the instance has is what this plug asks for.

        A profile is compared by its name: its requests keep what it asked for when they were
        made.
        """
        name = extra_specs.get(flavors.PROFILE_KEY)
        is_same = {arq.device_profile_name for arq in found} == {name}
        try:
            if is_same and name:
                is_same = all(arq.device_rp_uuid == _provider(providers, arq) for arq in found)
            elif is_same:
                known = {str(arq.device_rp_uuid): flavors.class_of(arq.group) for arq in found}
                wanted = self._wanted(session, providers, extra_specs, known)
                is_same = Counter(map(_held, found)) == Counter({
                    _key(index, each.group, each.provider): arqs_db.units(each.group)
                    for index, each in enumerate(wanted)})
        except (errors.BadRequest, errors.InvalidFlavor):
            is_same = False
        if not is_same:
            held = {f'device profile {arq.device_profile_name}' if arq.device_profile_name
                    else ' '.join(f'{key}={value}' for key, value in sorted(arq.group.items()))
                    for arq in found}
            raise errors.AlreadyPlugged(instance=instance['uuid'], host=found[0].hostname,
                                        held=', '.join(sorted(held)))

    @exposed
    def unplug_instance(self, context: RequestContext, hostname: str,
                        instance_uuid: str) -> int:
        """Release what the server has on this host; returns how many accelerators it held.
        Requests whose bind failed held none, and go too."""
        with self.unit_of_work(context, f'os_acc {hostname}') as unit:
            rows = arqs_db.of_instance(unit.session, instance_uuid, hostname)
            held = sum(row.state in arq_states.HOLDING for row in rows)
            arqs.delete_rows(unit, rows)
            return held


def _held(arq: objects.Arq) -> tuple[object, ...]:
    return _key(arq.device_profile_group_id, arq.group, arq.device_rp_uuid)


def _key(index: int, group: Mapping[str, str], provider: str | None) -> tuple[object, ...]:
    """What two requests have in common that ask for the same of the same provider."""
    return index, frozenset(group.items()), provider


def _provider(providers: dict[str, Any], arq: objects.Arq) -> str:
    """The provider that was chosen for a request's group of a profile."""
    requester = f'device_profile_{arq.device_profile_group_id}'
    chosen = flavors.providers_of(providers, requester)
    if not chosen:
        raise errors.BadRequest(
            f'selected_rp names no resource provider for {requester}: give "uuid" for all '
            f'groups or one entry a group.')
    return chosen[0]
