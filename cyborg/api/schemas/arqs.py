# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests on the wire, and how a PATCH says where they go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cyborg import errors, objects
from cyborg.api.schemas import checks, shapes
from cyborg.objects import arq_states

STATE = {'type': 'string', 'enum': [*arq_states.State, arq_states.UNKNOWN]}
HOSTNAME = {'type': 'string', 'minLength': 1, 'maxLength': 255}

LIST = shapes.listing(
    'state', instance=checks.UUID,
    bind_state={'type': 'string', 'enum': ['resolved'],
                'description': 'those about which nothing more will happen by itself; with '
                               'instance, 423 until all of them are'},
    state=STATE, hostname=shapes.FILTER, device_rp_uuid=checks.UUID,
    project_id=shapes.FILTER, device_profile_name=shapes.FILTER)
DELETE = {'type': 'object', 'properties': {'arqs': {'type': 'string'},
                                           'instance': checks.UUID}}
CREATE = {'type': 'object', 'required': ['device_profile_name'],
          'properties': {'device_profile_name': {'type': 'string'}},
          'examples': [{'device_profile_name': 'gzip-offload'}]}

#: path: what its value must be
BASIC_PATHS: dict[str, dict[str, Any]] = {
    '/hostname': HOSTNAME, '/device_rp_uuid': checks.UUID, '/instance_uuid': checks.UUID}
PATHS = BASIC_PATHS | {'/project_id': HOSTNAME}
OPERATION = {
    'type': 'object', 'required': ['op', 'path'], 'properties': {
        'op': {'type': 'string', 'enum': ['add', 'remove']},
        'path': {'type': 'string', 'enum': list(PATHS)},
        'value': {'description': 'with add: the name of a host, a UUID, a project'},
    }}
PATCH = {'type': 'object', 'minProperties': 1, 'propertyNames': checks.UUID,
         'additionalProperties': {'type': 'array', 'minItems': 1, 'items': OPERATION}}

SHOWN = shapes.item(
    state=STATE,
    device_profile_name=shapes.TEXT_OR_NULL,
    device_profile_group_id={'type': 'integer', 'minimum': 0},
    hostname=shapes.TEXT_OR_NULL,
    device_rp_uuid=shapes.or_null(checks.UUID),
    instance_uuid=shapes.or_null(checks.UUID),
    project_id=shapes.TEXT_OR_NULL,
    attach_handle_type=shapes.TEXT,
    attach_handle_uuid=shapes.or_null(checks.UUID),
    attach_handle_info={'type': 'object', 'additionalProperties': shapes.TEXT})


STEP = shapes.wrapped(
    at=shapes.MOMENT,
    event=shapes.TEXT | {'description': 'what happened'},
    from_state=shapes.TEXT_OR_NULL,
    to_state=shapes.TEXT,
    actor=shapes.TEXT | {'description': 'who: a user, an agent, the conductor'},
    request_id=shapes.TEXT_OR_NULL,
    hostname=shapes.TEXT_OR_NULL,
    instance_uuid=shapes.or_null(checks.UUID),
    reason=shapes.TEXT_OR_NULL,
    seconds_in_state={'type': ['number', 'null'], 'minimum': 0,
                      'description': 'for how long it was in the state that this ended'})
HISTORY = shapes.wrapped(history={'type': 'array', 'items': STEP})
HISTORY_SINCE = (2, 6)


@dataclass(frozen=True)
class Patch:
    """What a PATCH asks for: to bind, or to unbind."""

    bindings: list[objects.Binding] = field(default_factory=list)
    unbound: list[str] = field(default_factory=list)
    names_project: bool = False

    @property
    def uuids(self) -> list[str]:
        return self.unbound or [binding.arq_uuid for binding in self.bindings]


def patch(document: Mapping[str, list[dict[str, Any]]]) -> Patch:
    """Read a whole map of operations, or BadRequest with what is wrong in it."""
    arqs = {}
    for key, operations in document.items():
        uuid = key.lower()
        if uuid in arqs:
            raise errors.BadRequest(f'{uuid} is there twice.')
        arqs[uuid] = _operations(uuid, operations)
    verbs = {verb for verb, _ in arqs.values()}
    if len(verbs) != 1:
        raise errors.BadRequest('Bind or unbind: one request cannot do both.')
    names_project = any('/project_id' in values for _, values in arqs.values())
    if verbs == {'remove'}:
        return Patch(unbound=list(arqs), names_project=names_project)
    return Patch(bindings=[_binding(uuid, values) for uuid, (_, values) in arqs.items()],
                 names_project=names_project)


def _operations(uuid: str, operations: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The one verb of a request's operations, and the values by path."""
    verbs = {operation['op'] for operation in operations}
    if len(verbs) != 1:
        raise errors.BadRequest(f'{uuid}: all operations must be add, or all remove.')
    values: dict[str, Any] = {}
    for operation in operations:
        path = operation['path']
        if path in values:
            raise errors.BadRequest(f'{uuid}: {path} is there twice.')
        values[path] = operation.get('value')
    return verbs.pop(), values


def _binding(uuid: str, values: dict[str, Any]) -> objects.Binding:
    if absent := [path for path in BASIC_PATHS if path not in values]:
        raise errors.BadRequest(f'{uuid}: to bind it, {", ".join(absent)} must be added too.')
    for path, value in values.items():
        checks.check(value, PATHS[path], f'{uuid}: {path}')
    return objects.Binding(
        arq_uuid=uuid, hostname=values['/hostname'],
        device_rp_uuid=values['/device_rp_uuid'].lower(),
        instance_uuid=values['/instance_uuid'].lower(), project_id=values.get('/project_id'))
