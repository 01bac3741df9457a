# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests on the wire, and the PATCH that binds or unbinds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import wsme.types

from cyborg import errors, objects
from cyborg.api.types import documents, validation
from cyborg.api.types.documents import Field
from cyborg.objects import arq_states

STATE = documents.Enum(*arq_states.State, arq_states.UNKNOWN)
HOSTNAME = wsme.types.StringType(min_length=1, max_length=255)


class HandleType(documents.Shown):
    """The type of a handle; empty as long as there is none."""

    basetype, name = str, 'handle-type'
    schema: documents.Schema = {'type': 'string'}

    def tobasetype(self, value: str | None) -> str:
        return value or ''


class AcceleratorRequest(documents.Noun):
    uuid = Field(documents.UUID)
    state = Field(STATE)
    device_profile_name = Field(str, nullable=True)
    device_profile_group_id = Field(documents.COUNT)
    hostname = Field(str, nullable=True)
    device_rp_uuid = Field(documents.UUID, nullable=True)
    instance_uuid = Field(documents.UUID, nullable=True)
    project_id = Field(str, nullable=True)
    attach_handle_type = Field(HandleType())
    attach_handle_uuid = Field(documents.UUID, nullable=True)
    attach_handle_info = Field({str: str})
    created_at = Field(documents.MOMENT)
    updated_at = Field(documents.MOMENT, nullable=True)
    links = documents.links('accelerator_requests')


class ArqQuery(documents.Listing):
    instance = Field(documents.UUID, source='instance_uuid')
    bind_state = Field(
        documents.Enum('resolved'),
        'those whose state does not change by itself any more; with instance, 423 until all of '
        'them are',
    )
    state = Field(STATE)
    hostname = Field(documents.FILTER)
    device_rp_uuid = Field(documents.UUID)
    project_id = Field(documents.FILTER)
    device_profile_name = Field(documents.FILTER)
    sort_key = documents.sort_key('state')


class DeleteQuery(documents.Body):
    arqs = Field(str)
    instance = Field(documents.UUID)


class NewArqs(documents.Body):
    _examples = ({'device_profile_name': 'gzip-offload'},)

    device_profile_name = Field(str, mandatory=True)


class Step(documents.Document):
    """A step in the history of a request."""

    at = Field(documents.MOMENT)
    event = Field(str, 'what happened')
    from_state = Field(str, nullable=True)
    to_state = Field(str)
    actor = Field(str, 'a user, an agent, or the conductor')
    request_id = Field(str, nullable=True)
    hostname = Field(str, nullable=True)
    instance_uuid = Field(documents.UUID, nullable=True)
    reason = Field(str, nullable=True)
    seconds_in_state = Field(
        documents.DURATION, 'for how long it was in the state before this step', nullable=True
    )


class History(documents.Document):
    history = Field([Step])


#: path: what its value must be
BASIC_PATHS: dict[str, Any] = {
    '/hostname': HOSTNAME,
    '/device_rp_uuid': documents.UUID,
    '/instance_uuid': documents.UUID,
}
PATHS = BASIC_PATHS | {'/project_id': HOSTNAME}


class AnyValue(documents.UserType):
    """The value of an operation, which depends on its path."""

    name = 'any-value'
    schema: documents.Schema = {}


class Operation(documents.Body):
    op = Field(documents.Enum('add', 'remove'), mandatory=True)
    path = Field(documents.Enum(*PATHS), mandatory=True)
    value = Field(AnyValue(), 'with add: the name of a host, a UUID, a project')


@dataclass(frozen=True)
class Patch:
    """The content of a PATCH: requests to bind, or to unbind."""

    bindings: list[objects.Binding] = field(default_factory=list)
    unbound: list[str] = field(default_factory=list)
    names_project: bool = False

    @property
    def uuids(self) -> list[str]:
        return self.unbound or [binding.arq_uuid for binding in self.bindings]


class PatchMap(documents.UserType):
    """JSON patches by the uuids of requests."""

    basetype, name = dict, 'patch-map'
    schema: documents.Schema = {
        'type': 'object',
        'minProperties': 1,
        'propertyNames': documents.UUID.schema,
        'additionalProperties': documents.ListOf(Operation, minItems=1).schema,
    }

    def validate(self, value: Mapping[str, list[dict[str, Any]]]) -> Patch:
        """Returns the content of the whole map. Raises BadRequest if it is not valid."""
        arqs = {}
        for key, operations in value.items():
            uuid = key.lower()
            if uuid in arqs:
                raise errors.BadRequest(f'{uuid} occurs twice.')
            arqs[uuid] = _operations(uuid, operations)
        verbs = {verb for verb, _ in arqs.values()}
        if len(verbs) != 1:
            raise errors.BadRequest('One PATCH cannot both bind and unbind.')
        names_project = any('/project_id' in values for _, values in arqs.values())
        if verbs == {'remove'}:
            return Patch(unbound=list(arqs), names_project=names_project)
        return Patch(
            bindings=[_binding(uuid, values) for uuid, (_, values) in arqs.items()],
            names_project=names_project,
        )


def _operations(uuid: str, operations: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Returns the verb of all operations of a request, and their values by path."""
    verbs = {operation['op'] for operation in operations}
    if len(verbs) != 1:
        raise errors.BadRequest(f'{uuid}: all operations must be add, or all remove.')
    values: dict[str, Any] = {}
    for operation in operations:
        path = operation['path']
        if path in values:
            raise errors.BadRequest(f'{uuid}: {path} occurs twice.')
        values[path] = operation.get('value')
    return verbs.pop(), values


def _binding(uuid: str, values: dict[str, Any]) -> objects.Binding:
    if absent := [path for path in BASIC_PATHS if path not in values]:
        raise errors.BadRequest(f'{uuid}: to bind it, {", ".join(absent)} must be added too.')
    for path, value in values.items():
        validation.check(value, documents.schema_of(PATHS[path]), f'{uuid}: {path}')
    return objects.Binding(
        arq_uuid=uuid,
        hostname=values['/hostname'],
        device_rp_uuid=values['/device_rp_uuid'].lower(),
        instance_uuid=values['/instance_uuid'].lower(),
        project_id=values.get('/project_id'),
    )
