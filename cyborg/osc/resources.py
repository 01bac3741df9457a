# SPDX-License-Identifier: Apache-2.0
"""Resources of the API that openstacksdk does not have, or of which it lacks fields."""

from typing import Any, ClassVar

from openstack import resource


class Versioned(resource.Resource):
    """A resource that is read with the microversion that it needs."""

    #: the microversion with all fields that are declared here
    version: ClassVar[str]
    uuid = resource.Body('uuid', alternate_id=True)

    @classmethod
    def found(cls, client: Any, **parameters: Any) -> list[Any]:
        """Return all resources that match, from all pages."""
        return list(cls.list(client, microversion=cls.version, **parameters))

    @classmethod
    def one(cls, client: Any, ref: str) -> Any:
        """Return the resource with this UUID, or with a name if its path takes one."""
        return cls.new(id=ref).fetch(client, microversion=cls.version)


class Agent(Versioned):
    version = '2.4'
    base_path = '/agents'
    resources_key = 'agents'
    allow_list = allow_fetch = True
    _query_mapping = resource.QueryParameters('hostname', 'alive', 'ready')

    hostname = resource.Body('hostname')
    is_alive = resource.Body('alive', type=bool)
    is_ready = resource.Body('ready', type=bool)
    last_heartbeat = resource.Body('last_heartbeat')
    drivers = resource.Body('drivers', type=list)
    conflicts = resource.Body('conflicts', type=dict)


class HistoryStep(Versioned):
    version = '2.6'
    base_path = '/accelerator_requests/%(arq_uuid)s/history'
    resources_key = 'history'
    allow_list = True

    arq_uuid = resource.URI('arq_uuid')
    at = resource.Body('at')
    event = resource.Body('event')
    from_state = resource.Body('from_state')
    to_state = resource.Body('to_state')
    actor = resource.Body('actor')
    request_id = resource.Body('request_id')
    hostname = resource.Body('hostname')
    instance_uuid = resource.Body('instance_uuid')
    reason = resource.Body('reason')
    seconds_in_state = resource.Body('seconds_in_state')


class HandBack(Versioned):
    version = '2.9'
    base_path = '/devices/%(of_device)s/handbacks'
    resources_key = 'handbacks'
    allow_list = True
    _query_mapping = resource.QueryParameters('result', 'arq_uuid', 'instance_uuid')

    of_device = resource.URI('of_device')
    kind = resource.Body('kind')
    result = resource.Body('result')
    reason = resource.Body('reason')
    hostname = resource.Body('hostname')
    device_uuid = resource.Body('device_uuid')
    attach_handle_uuid = resource.Body('attach_handle_uuid')
    attach_handle_type = resource.Body('attach_handle_type')
    attach_handle_info = resource.Body('attach_handle_info', type=dict)
    arq_uuid = resource.Body('arq_uuid')
    instance_uuid = resource.Body('instance_uuid')
    project_id = resource.Body('project_id')
    attempts = resource.Body('attempts', type=int)
    steps = resource.Body('steps', type=list)
    seconds = resource.Body('seconds')
    decision = resource.Body('decision')
    decided_by = resource.Body('decided_by')
    decision_reason = resource.Body('decision_reason')
    created_at = resource.Body('created_at')
    finished_at = resource.Body('finished_at')


class DeviceProfile(Versioned):
    version = '2.5'
    base_path = '/device_profiles'
    resource_key = 'device_profile'
    resources_key = 'device_profiles'
    allow_list = allow_fetch = allow_commit = True
    commit_method = 'PATCH'

    name = resource.Body('name')
    description = resource.Body('description')
    groups = resource.Body('groups', type=list)
    is_enabled = resource.Body('enabled', type=bool)
    projects = resource.Body('projects')
    created_at = resource.Body('created_at')
    updated_at = resource.Body('updated_at')


class Availability(Versioned):
    version = '2.10'
    base_path = '/device_profiles/%(profile)s/availability'
    allow_fetch = True
    _query_mapping = resource.QueryParameters('hostname')

    profile = resource.URI('profile')
    device_profile_name = resource.Body('device_profile_name')
    is_enabled = resource.Body('enabled', type=bool)
    fits = resource.Body('fits', type=int)
    is_at_most = resource.Body('at_most', type=bool)
    hosts_considered = resource.Body('hosts_considered', type=int)
    hosts_fitting = resource.Body('hosts_fitting', type=int)
    reasons = resource.Body('reasons', type=dict)
    groups = resource.Body('groups', type=list)
    #: None for users who may not list devices
    hosts = resource.Body('hosts', type=list)


class ModelCapacity(Versioned):
    version = '2.11'
    base_path = '/capacity'
    resources_key = 'capacity'
    allow_list = True

    type = resource.Body('type')
    vendor = resource.Body('vendor')
    model = resource.Body('model')
    resource_class = resource.Body('resource_class')
    hosts = resource.Body('hosts', type=int)
    units = resource.Body('units', type=int)
    in_use = resource.Body('in_use', type=int)
    free = resource.Body('free', type=int)
    withheld = resource.Body('withheld', type=dict)


class TopologyHost(Versioned):
    version = '2.11'
    base_path = '/topology'
    resources_key = 'hosts'
    allow_list = True
    _query_mapping = resource.QueryParameters('hostname')

    hostname = resource.Body('hostname')
    is_alive = resource.Body('alive', type=bool)
    devices = resource.Body('devices', type=list)


class ProjectUsage(Versioned):
    version = '2.12'
    base_path = '/usage'
    resources_key = 'usage'
    allow_list = True
    _query_mapping = resource.QueryParameters('start', 'end', 'project_id')

    project_id = resource.Body('project_id')
    device_profile_name = resource.Body('device_profile_name')
    resource_class = resource.Body('resource_class')
    requests = resource.Body('requests', type=int)
    hours = resource.Body('hours', type=float)


class Deployable(Versioned):
    version = '2.8'
    base_path = '/deployables'
    resources_key = 'deployables'
    allow_list = allow_fetch = True

    name = resource.Body('name')
    device_uuid = resource.Body('device_uuid')
    bitstream_id = resource.Body('bitstream_id')
    is_programmable = resource.Body('is_programmable', type=bool)
    program_image = resource.Body('program_image')
    program_progress = resource.Body('program_progress')
    program_error = resource.Body('program_error')
    quarantine_reason = resource.Body('quarantine_reason')
