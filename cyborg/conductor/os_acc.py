# SPDX-License-Identifier: Apache-2.0
"""The second door: what nova-compute asks by os_acc ends in the same engine as Nova's REST."""

from typing import Any

from cyborg import errors, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import (
    arqs,
    binding,
    deployables,
    device_profiles,
    matching,
    releasing,
)

PROFILE_KEY = 'accel:device_profile'
#: beginnings of standard traits that only a compute node has: in a flavor, a trait may be any
#: provider's
NODE_TRAITS = ('COMPUTE_', 'HW_ARCH_', 'HW_CPU_', 'HW_NUMA_', 'MISC_', 'OWNER_NOVA', 'STORAGE_')


class OsAcc(Endpoint):

    @exposed
    def plug_instance(self, context: RequestContext, hostname: str, instance: dict[str, str],
                      providers: dict[str, Any], extra_specs: dict[str, str],
                      ) -> list[objects.Arq]:
        """Create and bind what the flavor asks for; asked again, answer what is bound."""
        scope = self.scope(context)
        mine = {'instance_uuid': instance['uuid'], 'hostname': hostname}
        with self.change(context, f'os_acc {hostname}') as ledger:
            if found := arqs.find(ledger.session, scope, mine, {}):
                return found
            matching.require_honoured('The flavor', {
                key: value for key, value in extra_specs.items() if key != PROFILE_KEY})
            profile = None
            if PROFILE_KEY in extra_specs:
                profile = device_profiles.named(ledger.session, extra_specs[PROFILE_KEY])
                groups = profile.groups
            else:
                groups = [_group(extra_specs, _resource_class(ledger.session, providers))]
            created = arqs.create(ledger, groups, instance.get('project_id'), profile)
            bindings = [
                objects.Binding(arq_uuid=arq.uuid, hostname=hostname,
                                instance_uuid=instance['uuid'],
                                device_rp_uuid=_provider(providers, arq),
                                project_id=instance.get('project_id'))
                for arq in created]
            binding.bind(ledger, scope, bindings, self.bind_deadline(), idle=())
            return arqs.find(ledger.session, scope, mine, {})

    @exposed
    def unplug_instance(self, context: RequestContext, hostname: str,
                        instance_uuid: str) -> int:
        """Release what the server has on this host; answers how many."""
        with self.change(context, f'os_acc {hostname}') as ledger:
            return releasing.delete_of_instance(ledger, instance_uuid, hostname)


def _provider(providers: dict[str, Any], arq: objects.Arq) -> str:
    """The provider that was chosen for a request's group: one for all, or Nova's mapping."""
    requester = f'device_profile_{arq.device_profile_group_id}'
    chosen = providers.get(requester) or providers.get('uuid')
    if not chosen:
        raise errors.BadRequest(
            f'selected_rp names no resource provider for {requester}: give "uuid" for all '
            f'groups or one entry a group.')
    return chosen[0] if isinstance(chosen, list) else chosen


def _resource_class(session: Any, providers: dict[str, Any]) -> str:
    rp_uuid = providers.get('uuid')
    found = deployables.find(session, {'rp_uuid': rp_uuid or ''}, {})
    if not found or not found[0].resource_class:
        raise errors.BadRequest(
            'Without accel:device_profile in the flavor, selected_rp must name by "uuid" a '
            'resource provider of an accelerator.')
    return found[0].resource_class


def _group(extra_specs: dict[str, str], resource_class: str) -> dict[str, str]:
    """What a flavor without a profile asks of this provider."""
    wanted = f'resources:{resource_class}'
    group = {key: str(value) for key, value in extra_specs.items()
             if key == wanted or (key.startswith('trait:')
                                  and not key.removeprefix('trait:').startswith(NODE_TRAITS))}
    amount = group.get(wanted, '')
    if not amount.isdecimal() or int(amount) < 1:
        raise errors.BadRequest(
            f'The flavor asks neither for a device profile nor for resources:{resource_class}.')
    return group
