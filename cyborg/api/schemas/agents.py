# SPDX-License-Identifier: Apache-2.0
"""Agents on the wire."""

from cyborg import errors, objects
from cyborg.api.schemas import checks, shapes

SINCE = (2, 4)

#: on the wire: as objects have it
STORED = {'alive': 'is_alive', 'ready': 'is_ready'}

LIST = shapes.listing('hostname', 'last_heartbeat', hostname=shapes.FILTER, alive=shapes.FLAG,
                      ready=shapes.FLAG)

DRIVER = shapes.wrapped(
    name=shapes.TEXT,
    status={'type': 'string', 'enum': list(objects.DriverStatus)},
    error=shapes.TEXT_OR_NULL | {'description': 'why it failed when it was last asked'})

SHOWN = shapes.item(
    hostname=shapes.TEXT,
    alive=shapes.FLAG | {'description': 'heard of lately'},
    ready=shapes.FLAG | {
        'description': 'all drivers were asked, and Placement has what they found'},
    last_heartbeat=shapes.MOMENT,
    drivers={'type': 'array', 'items': DRIVER},
    conflicts={'type': 'object', 'additionalProperties': shapes.TEXT,
               'description': 'devices that somebody else claims in Placement: '
                              'name of the provider -> by whom'})


def ref(text: str) -> str:
    """A uuid or the name of a host, as it is stored; AgentNotFound if it could not be one."""
    if len(text) > shapes.FILTER['maxLength'] or '\0' in text:
        raise errors.AgentNotFound(ref=repr(text[:64]))
    return text.lower() if checks.is_uuid(text) else text
