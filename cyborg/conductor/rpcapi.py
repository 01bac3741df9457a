# SPDX-License-Identifier: Apache-2.0
"""The client side of the conductor's RPC interface."""

import copy
import math
import time
from typing import Any, TypeVar, cast

import oslo_messaging as messaging
from oslo_utils import uuidutils

from cyborg import errors, objects, rpc, rpc_versions
from cyborg.context import RequestContext
from cyborg.objects import manifests

Answer = TypeVar('Answer')
Filters = dict[str, Any]
#: seconds after which a heartbeat is dropped: the agent has sent another one by then
HEARTBEAT_EXPIRY = 60
Page = dict[str, Any]  #: limit, marker (uuid), sort_key, sort_dir; all optional


class ConductorAPI:
    """Version history:

    2.0: first version
    2.1: see cyborg/objects/manifests.py
    """

    VERSION = manifests.NEWEST
    #: arguments that were added after 2.0: method -> {argument: its first version}
    ADDED: rpc_versions.Added = {'plug_instance': {'image_request': '2.1'}}
    #: methods that have other arguments in 2.0: method -> the version in which they changed
    CHANGED = dict.fromkeys(('list_hand_backs', 'clean_handle', 'release_handle'), '2.1')

    def __init__(self, transport: Any, limits: rpc.Limits | None = None) -> None:
        newest = rpc.pinned(transport.conf, rpc.CONDUCTOR) or self.VERSION
        self._client = rpc.Client(
            transport,
            rpc.CONDUCTOR,
            limits=limits,
            newest=lambda: newest,
            added=self.ADDED,
            changed=self.CHANGED,
        )
        self._heartbeats = rpc.Client(
            transport, rpc.HEARTBEATS, HEARTBEAT_EXPIRY, newest=lambda: newest
        )
        self._reports = rpc.Client(transport, rpc.REPORTS, limits=limits, newest=lambda: newest)
        #: whether conductors have the topic for reports, and when to ask them again
        self._has_reports_topic = False
        self._ask_for_topic_at = math.inf if newest == manifests.OLDEST else 0.0

    def _call(
        self, answer: type[Answer], context: RequestContext, method: str, **arguments: Any
    ) -> Answer:
        """Call once and return the result; ``answer`` is its type."""
        return cast(Answer, self._client.call(context, method, **arguments))

    def _read(
        self, answer: type[Answer], context: RequestContext, method: str, **arguments: Any
    ) -> Answer:
        """Call a method that changes nothing."""
        return cast(Answer, self._client.read(context, method, **arguments))

    def _repeat(
        self, answer: type[Answer], context: RequestContext, method: str, **arguments: Any
    ) -> Answer:
        """Call a method that is safe to repeat. It is repeated once if there is no answer."""
        return cast(Answer, self._client.call_repeatably(context, method, **arguments))

    def _do(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Call a method that is safe to repeat and returns nothing."""
        self._client.call_repeatably(context, method, **arguments)

    def _delete(self, context: RequestContext, method: str, **arguments: Any) -> None:
        """Call a method that deletes what exists, whatever else is named. A repeated call may find
        nothing to delete."""
        self._client.delete(context, method, **arguments)

    # -- hosts, called by agents -----------------------------------------------------------

    def report(self, context: RequestContext, report: objects.Report) -> objects.Plan:
        """Report the state of a host; returns the providers to publish and the open tasks."""
        client = self._client_for_reports(context)
        try:
            return cast(objects.Plan, client.call(context, 'report', report=report))
        except messaging.MessagingTimeout:
            # conductors that have the topic may be gone, replaced by those of an earlier release
            self._ask_for_topic_at = min(self._ask_for_topic_at, time.monotonic())
            raise

    def _client_for_reports(self, context: RequestContext) -> rpc.Client:
        """Returns the client of the topic for reports, or that of the common topic if a conductor
        of an earlier release has answered."""
        if time.monotonic() >= self._ask_for_topic_at:
            try:
                self._client.read(context, 'has_reports_topic')
            except errors.IncompatibleRelease:
                self._has_reports_topic = False
                self._ask_for_topic_at = time.monotonic() + rpc_versions.CAUTION
            else:
                self._has_reports_topic, self._ask_for_topic_at = True, math.inf
        return self._reports if self._has_reports_topic else self._client

    def heartbeat(self, context: RequestContext, hostname: str, digest: str) -> None:
        """Send a heartbeat: nothing has changed since the report with this digest."""
        self._heartbeats.cast(context, 'heartbeat', hostname=hostname, digest=digest)

    def finish_tasks(
        self, context: RequestContext, hostname: str, results: list[objects.TaskResult]
    ) -> list[objects.Task]:
        """Send the results of tasks; returns the next tasks of the host."""
        return self._call(
            list[objects.Task], context, 'finish_tasks', hostname=hostname, results=results
        )

    def note_progress(
        self, context: RequestContext, hostname: str, task_uuid: str, progress: str
    ) -> None:
        """Send the progress of a task."""
        self._client.cast(
            context, 'note_progress', hostname=hostname, task_uuid=task_uuid, progress=progress
        )

    def is_task_wanted(self, context: RequestContext, hostname: str, task_uuid: str) -> bool:
        """Returns whether the host must still perform a task. Conductors of earlier releases do
        not have this: IncompatibleRelease is raised."""
        return self._read(bool, context, 'is_task_wanted', hostname=hostname, task_uuid=task_uuid)

    # -- agents, as operators see them -----------------------------------------------------

    def list_agents(
        self, context: RequestContext, filters: Filters, page: Page
    ) -> list[objects.Agent]:
        """Filters: hostname, is_alive, is_ready."""
        return self._read(list[objects.Agent], context, 'list_agents', filters=filters, page=page)

    def get_agent(self, context: RequestContext, ref: str) -> objects.Agent:
        """By uuid or the name of its host."""
        return self._read(objects.Agent, context, 'get_agent', ref=ref)

    def check_health(self, context: RequestContext, names: list[str]) -> dict[str, str | None]:
        """Returns for each named part, ``database`` or ``placement``, what is wrong, or None."""
        return self._read(dict[str, str | None], context, 'check_health', names=names)

    # -- device profiles -------------------------------------------------------------------

    def list_device_profiles(
        self, context: RequestContext, filters: Filters, page: Page
    ) -> list[objects.DeviceProfile]:
        """Filters: ``name``, a list of exact names; ``is_enabled``."""
        return self._read(
            list[objects.DeviceProfile], context, 'list_device_profiles', filters=filters, page=page
        )

    def get_device_profile(self, context: RequestContext, ref: str) -> objects.DeviceProfile:
        """By uuid or name."""
        return self._read(objects.DeviceProfile, context, 'get_device_profile', ref=ref)

    def create_device_profiles(
        self, context: RequestContext, profiles: list[objects.DeviceProfile]
    ) -> list[objects.DeviceProfile]:
        """Create all of them or none."""
        return self._repeat(
            list[objects.DeviceProfile], context, 'create_device_profiles', profiles=profiles
        )

    def update_device_profile(
        self, context: RequestContext, ref: str, changes: dict[str, Any]
    ) -> objects.DeviceProfile:
        """By uuid or name; ``changes`` has the new values of fields."""
        return self._call(
            objects.DeviceProfile, context, 'update_device_profile', ref=ref, changes=changes
        )

    def delete_device_profiles(self, context: RequestContext, refs: list[str]) -> None:
        """By uuids or names, all or none. Raises ProfileNotFound if one does not exist.

        Conductors of the previous release do not know that a call is repeated. If that does not
        find a single profile, the profile counts as deleted. Of several, all or none may be left.
        """
        delete = self._delete if len(refs) == 1 else self._do
        delete(_with_key(context), 'delete_device_profiles', refs=refs)

    def get_availability(
        self,
        context: RequestContext,
        ref: str,
        hostname: str | None = None,
        with_hosts: bool = False,
    ) -> objects.Availability:
        """Returns how often a profile, by uuid or name, fits now, on all hosts or on one."""
        return self._read(
            objects.Availability,
            context,
            'get_availability',
            ref=ref,
            hostname=hostname,
            with_hosts=with_hosts,
        )

    # -- what the cloud has ----------------------------------------------------------------

    def list_capacity(self, context: RequestContext) -> list[objects.ModelCapacity]:
        """All units, by model and resource class."""
        return self._read(list[objects.ModelCapacity], context, 'list_capacity')

    def get_topology(self, context: RequestContext, hostname: str) -> objects.HostUnits:
        """A host with its devices, their deployables and units."""
        return self._read(objects.HostUnits, context, 'get_topology', hostname=hostname)

    def get_usage(
        self,
        context: RequestContext,
        start: str | None = None,
        end: str | None = None,
        project_id: str | None = None,
    ) -> objects.Usage:
        """Accelerator-hours between two moments in ISO 8601, of one project or of all."""
        return self._read(
            objects.Usage, context, 'get_usage', start=start, end=end, project_id=project_id
        )

    # -- accelerator requests --------------------------------------------------------------

    def create_arqs(self, context: RequestContext, profile_name: str) -> list[objects.Arq]:
        """Create a request for each unit that the profile asks for, in the order of its groups."""
        return self._repeat(list[objects.Arq], context, 'create_arqs', profile_name=profile_name)

    def list_arqs(self, context: RequestContext, filters: Filters, page: Page) -> list[objects.Arq]:
        """Filters: ``instance_uuid``, ``state`` (a list), and other plain fields."""
        return self._read(list[objects.Arq], context, 'list_arqs', filters=filters, page=page)

    def get_arq(self, context: RequestContext, uuid: str) -> objects.Arq:
        return self._read(objects.Arq, context, 'get_arq', uuid=uuid)

    def get_arq_history(self, context: RequestContext, uuid: str) -> list[objects.Transition]:
        """Returns the steps of a request in their order, also after it was deleted."""
        return self._read(list[objects.Transition], context, 'get_arq_history', uuid=uuid)

    def bind_arqs(
        self, context: RequestContext, bindings: list[objects.Binding], waited: float = 0.0
    ) -> list[objects.Arq]:
        """Bind all or none. Returns uuids, states and reasons: a host may still have to prepare
        handles. ``waited`` are the seconds since a first attempt of the same bind."""
        return self._repeat(
            list[objects.Arq], context, 'bind_arqs', waited=waited, bindings=bindings
        )

    def unbind_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Unbind all or none. A request that is unbound already stays as it is."""
        self._do(context, 'unbind_arqs', uuids=uuids)

    def delete_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Delete the requests that exist. Raises ArqNotFound for the others."""
        self._delete(context, 'delete_arqs', uuids=uuids)

    def delete_instance_arqs(self, context: RequestContext, instance_uuid: str) -> None:
        """Delete all requests of a server. It need not have any."""
        self._do(context, 'delete_instance_arqs', instance_uuid=instance_uuid)

    # -- devices, deployables, attributes --------------------------------------------------

    def list_devices(
        self, context: RequestContext, filters: Filters, page: Page
    ) -> list[objects.Device]:
        """Returns devices without their parts. Filters: type, vendor, hostname and other plain
        fields."""
        return self._read(list[objects.Device], context, 'list_devices', filters=filters, page=page)

    def get_device(self, context: RequestContext, uuid: str) -> objects.Device:
        return self._read(objects.Device, context, 'get_device', uuid=uuid)

    def set_device_status(self, context: RequestContext, uuid: str, status: str) -> None:
        """Enable or disable a device. Nova places no new server on a disabled device."""
        self._do(context, 'set_device_status', uuid=uuid, status=status)

    def list_deployables(
        self, context: RequestContext, filters: Filters, page: Page
    ) -> list[objects.Deployable]:
        """Returns deployables with their attributes and without their handles."""
        return self._read(
            list[objects.Deployable], context, 'list_deployables', filters=filters, page=page
        )

    def get_deployable(self, context: RequestContext, uuid: str) -> objects.Deployable:
        return self._read(objects.Deployable, context, 'get_deployable', uuid=uuid)

    def program_deployable(
        self, context: RequestContext, uuid: str, image_uuid: str
    ) -> objects.Deployable:
        """Have the host of a deployable load an image. ``is_programming`` of the deployable is
        true until that has ended."""
        return self._call(
            objects.Deployable, context, 'program_deployable', uuid=uuid, image_uuid=image_uuid
        )

    def is_programmed(self, context: RequestContext, task_uuid: str) -> bool:
        """Returns whether a task has loaded its image; raises ProgramFailed if it has failed.
        Conductors of earlier releases do not have this: IncompatibleRelease is raised."""
        return self._read(bool, context, 'is_programmed', task_uuid=task_uuid)

    def list_hand_backs(
        self, context: RequestContext, filters: Filters, page: Page, device_uuid: str
    ) -> list[objects.HandBack]:
        """Filters: handle_uuid, arq_uuid, instance_uuid, project_id, state."""
        return self._read(
            list[objects.HandBack],
            context,
            'list_hand_backs',
            filters=filters,
            page=page,
            device_uuid=device_uuid,
        )

    def clean_handle(
        self, context: RequestContext, device_uuid: str, handle_uuid: str
    ) -> objects.HandBack:
        """Have a host clean a quarantined handle again; returns the record of the new clean-up."""
        return self._call(
            objects.HandBack,
            context,
            'clean_handle',
            device_uuid=device_uuid,
            handle_uuid=handle_uuid,
        )

    def release_handle(
        self, context: RequestContext, device_uuid: str, handle_uuid: str, reason: str
    ) -> objects.HandBack:
        """Offer a quarantined handle again without cleaning; returns the record of the clean-up
        that failed."""
        return self._call(
            objects.HandBack,
            context,
            'release_handle',
            device_uuid=device_uuid,
            handle_uuid=handle_uuid,
            reason=reason,
        )

    def list_attributes(
        self, context: RequestContext, filters: Filters, page: Page, nested: bool = False
    ) -> list[objects.Attribute]:
        """Filters: deployable_id, deployable_uuid, parent_uuid, key, value.

        ``nested``: return the topmost attributes, with their children in them.
        """
        return self._read(
            list[objects.Attribute],
            context,
            'list_attributes',
            filters=filters,
            page=page,
            nested=nested,
        )

    def get_attribute(
        self, context: RequestContext, uuid: str, nested: bool = False
    ) -> objects.Attribute:
        return self._read(objects.Attribute, context, 'get_attribute', uuid=uuid, nested=nested)

    def create_attribute(
        self,
        context: RequestContext,
        deployable: str,
        key: str,
        value: str,
        parent_uuid: str | None = None,
    ) -> objects.Attribute:
        """``deployable``: its uuid, or its internal number as a string."""
        return self._repeat(
            objects.Attribute,
            context,
            'create_attribute',
            deployable=deployable,
            key=key,
            value=value,
            parent_uuid=parent_uuid,
        )

    def delete_attribute(self, context: RequestContext, uuid: str) -> None:
        self._delete(context, 'delete_attribute', uuid=uuid)

    # -- os_acc, through the agent of a host -----------------------------------------------

    def plug_instance(
        self,
        context: RequestContext,
        hostname: str,
        instance: dict[str, str],
        providers: dict[str, Any],
        extra_specs: dict[str, str],
        image_request: dict[str, str] | None = None,
    ) -> list[objects.Arq]:
        """Create and bind the requests of a flavor on this host in one step.

        ``image_request`` is the bitstream that the server's image asks for; empty: it asks for
        none. None: it is not known; raises ServerImageUnread if it must be. Unless it is empty,
        conductors of the previous release cannot do it: raises IncompatibleRelease.
        """
        wish = {} if image_request == {} else {'image_request': image_request}
        return self._call(
            list[objects.Arq],
            context,
            'plug_instance',
            hostname=hostname,
            instance=instance,
            providers=providers,
            extra_specs=extra_specs,
            **wish,
        )

    def unplug_instance(self, context: RequestContext, hostname: str, instance_uuid: str) -> int:
        """Release the accelerators of a server on this host; returns how many it held."""
        return self._call(
            int, context, 'unplug_instance', hostname=hostname, instance_uuid=instance_uuid
        )


def _with_key(context: RequestContext) -> RequestContext:
    """Returns a context by which a conductor knows that a call is repeated."""
    keyed = copy.copy(context)
    keyed.idempotency_key = f'own {uuidutils.generate_uuid()}'
    return keyed
