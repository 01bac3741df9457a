# SPDX-License-Identifier: Apache-2.0
"""What one may ask a conductor: the twin of its endpoints, a line or two a method."""

from typing import Any

from cyborg import objects, rpc
from cyborg.context import RequestContext

Filters = dict[str, Any]
#: seconds after which a heartbeat is not worth reading: the agent has sent another one by then
HEARTBEAT_EXPIRY = 60
Page = dict[str, Any]  #: limit, marker (uuid), sort_key, sort_dir; all optional


class ConductorAPI:
    """Version history:

    2.0: first version
    """

    VERSION = '2.0'

    def __init__(self, transport: Any) -> None:
        self._client = rpc.Client(transport, rpc.CONDUCTOR, self.VERSION)
        self._heartbeats = rpc.Client(transport, rpc.HEARTBEATS, self.VERSION, HEARTBEAT_EXPIRY)

    def _call(self, context: RequestContext, method: str, **arguments: Any) -> Any:
        return self._client.call(context, method, **arguments)

    # -- hosts: what agents say ------------------------------------------------------------

    def report(self, context: RequestContext, report: objects.Report) -> objects.Plan:
        """Hand in the whole picture of a host; answers what to publish and what is undone."""
        return self._call(context, 'report', report=report)

    def heartbeat(self, context: RequestContext, hostname: str, digest: str) -> None:
        """Say that nothing changed since the report with this digest."""
        self._heartbeats.cast(context, 'heartbeat', hostname=hostname, digest=digest)

    def finish_tasks(self, context: RequestContext, hostname: str,
                     results: list[objects.TaskResult]) -> list[objects.Task]:
        """Tell how tasks ended; returns what the host has to do next."""
        return self._call(context, 'finish_tasks', hostname=hostname, results=results)

    def note_progress(self, context: RequestContext, hostname: str, task_uuid: str,
                      progress: str) -> None:
        """Tell how far a task has got."""
        self._client.cast(context, 'note_progress', hostname=hostname, task_uuid=task_uuid,
                          progress=progress)

    # -- agents, as operators see them -----------------------------------------------------

    def list_agents(self, context: RequestContext, filters: Filters,
                    page: Page) -> list[objects.Agent]:
        """Filters: hostname, is_alive, is_ready."""
        return self._call(context, 'list_agents', filters=filters, page=page)

    def get_agent(self, context: RequestContext, ref: str) -> objects.Agent:
        """By uuid or the name of its host."""
        return self._call(context, 'get_agent', ref=ref)

    # -- device profiles -------------------------------------------------------------------

    def list_device_profiles(self, context: RequestContext, filters: Filters,
                             page: Page) -> list[objects.DeviceProfile]:
        """Filters: ``name``, a list of exact names; ``is_enabled``."""
        return self._call(context, 'list_device_profiles', filters=filters, page=page)

    def get_device_profile(self, context: RequestContext, ref: str) -> objects.DeviceProfile:
        """By uuid or name."""
        return self._call(context, 'get_device_profile', ref=ref)

    def create_device_profiles(
            self, context: RequestContext,
            profiles: list[objects.DeviceProfile]) -> list[objects.DeviceProfile]:
        """All or none."""
        return self._call(context, 'create_device_profiles', profiles=profiles)

    def update_device_profile(self, context: RequestContext, ref: str,
                              changes: dict[str, Any]) -> objects.DeviceProfile:
        """By uuid or name; ``changes``: new values of fields."""
        return self._call(context, 'update_device_profile', ref=ref, changes=changes)

    def delete_device_profiles(self, context: RequestContext, refs: list[str]) -> None:
        """By uuids or names, all or none."""
        self._call(context, 'delete_device_profiles', refs=refs)

    # -- accelerator requests --------------------------------------------------------------

    def create_arqs(self, context: RequestContext, profile_name: str) -> list[objects.Arq]:
        """One request per unit the profile asks for, in group order."""
        return self._call(context, 'create_arqs', profile_name=profile_name)

    def list_arqs(self, context: RequestContext, filters: Filters,
                  page: Page) -> list[objects.Arq]:
        """Filters: ``instance_uuid``, ``state`` (a list), and other plain fields."""
        return self._call(context, 'list_arqs', filters=filters, page=page)

    def get_arq(self, context: RequestContext, uuid: str) -> objects.Arq:
        return self._call(context, 'get_arq', uuid=uuid)

    def get_arq_history(self, context: RequestContext, uuid: str) -> list[objects.Transition]:
        """Its steps, first to last, also when it is gone already."""
        return self._call(context, 'get_arq_history', uuid=uuid)

    def bind_arqs(self, context: RequestContext,
                  bindings: list[objects.Binding]) -> list[objects.Arq]:
        """All or none; answers uuids, states and reasons: a host may still have to prepare."""
        return self._call(context, 'bind_arqs', bindings=bindings)

    def unbind_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """All or none; what is unbound already stays so."""
        self._call(context, 'unbind_arqs', uuids=uuids)

    def delete_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Delete those that exist; ArqNotFound then names the others."""
        self._call(context, 'delete_arqs', uuids=uuids)

    def delete_instance_arqs(self, context: RequestContext, instance_uuid: str) -> None:
        """Delete all of a server's requests; none is fine."""
        self._call(context, 'delete_instance_arqs', instance_uuid=instance_uuid)

    # -- devices, deployables, attributes --------------------------------------------------

    def list_devices(self, context: RequestContext, filters: Filters,
                     page: Page) -> list[objects.Device]:
        """Filters: type, vendor, hostname and other plain fields. Without their parts."""
        return self._call(context, 'list_devices', filters=filters, page=page)

    def get_device(self, context: RequestContext, uuid: str) -> objects.Device:
        return self._call(context, 'get_device', uuid=uuid)

    def set_device_status(self, context: RequestContext, uuid: str, status: str) -> None:
        """Enable a device, or keep it for maintenance: then nothing new is placed on it."""
        self._call(context, 'set_device_status', uuid=uuid, status=status)

    def list_deployables(self, context: RequestContext, filters: Filters,
                         page: Page) -> list[objects.Deployable]:
        """With their attributes, without their handles."""
        return self._call(context, 'list_deployables', filters=filters, page=page)

    def get_deployable(self, context: RequestContext, uuid: str) -> objects.Deployable:
        return self._call(context, 'get_deployable', uuid=uuid)

    def program_deployable(self, context: RequestContext, uuid: str,
                           image_uuid: str) -> objects.Deployable:
        """Have its host load an image. As long as ``is_programming`` is shown, that goes on."""
        return self._call(context, 'program_deployable', uuid=uuid, image_uuid=image_uuid)

    def clean_handle(self, context: RequestContext, uuid: str) -> None:
        """Have a host try once more to clean a handle that is quarantined."""
        self._call(context, 'clean_handle', uuid=uuid)

    def release_handle(self, context: RequestContext, uuid: str) -> None:
        """Give a handle out again that is quarantined, as it is."""
        self._call(context, 'release_handle', uuid=uuid)

    def list_hand_backs(self, context: RequestContext, filters: Filters,
                        page: Page) -> list[objects.HandBack]:
        """Filters: device_uuid, hostname, handle_uuid, arq_uuid, state."""
        return self._call(context, 'list_hand_backs', filters=filters, page=page)

    def list_attributes(self, context: RequestContext, filters: Filters,
                        page: Page, nested: bool = False) -> list[objects.Attribute]:
        """Filters: deployable_id, deployable_uuid, parent_uuid, key, value.

        ``nested``: those at the top, with all that is below inside them.
        """
        return self._call(context, 'list_attributes', filters=filters, page=page, nested=nested)

    def get_attribute(self, context: RequestContext, uuid: str,
                      nested: bool = False) -> objects.Attribute:
        return self._call(context, 'get_attribute', uuid=uuid, nested=nested)

    def create_attribute(self, context: RequestContext, deployable: str, key: str, value: str,
                         parent_uuid: str | None = None) -> objects.Attribute:
        """``deployable``: its uuid, or its internal number as a string."""
        return self._call(context, 'create_attribute', deployable=deployable, key=key,
                          value=value, parent_uuid=parent_uuid)

    def delete_attribute(self, context: RequestContext, uuid: str) -> None:
        self._call(context, 'delete_attribute', uuid=uuid)

    # -- the second door: os_acc, by way of a host's agent ---------------------------------

    def plug_instance(self, context: RequestContext, hostname: str, instance: dict[str, str],
                      providers: dict[str, Any], extra_specs: dict[str, str],
                      ) -> list[objects.Arq]:
        """Create and bind in one step what a flavor asks for on this host."""
        return self._call(context, 'plug_instance', hostname=hostname, instance=instance,
                          providers=providers, extra_specs=extra_specs)

    def unplug_instance(self, context: RequestContext, hostname: str,
                        instance_uuid: str) -> int:
        """Release what the server has on this host; answers how many."""
        return self._call(context, 'unplug_instance', hostname=hostname,
                          instance_uuid=instance_uuid)
