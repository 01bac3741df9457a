# SPDX-License-Identifier: Apache-2.0
"""Agents on the wire."""

from cyborg import errors, objects
from cyborg.api.types import documents
from cyborg.api.types.documents import Field


class Driver(documents.Document):
    name = Field(str)
    status = Field(documents.Enum(*objects.DriverStatus))
    error = Field(str, 'why its last discovery failed', nullable=True)


class Agent(documents.Noun):
    uuid = Field(documents.UUID)
    hostname = Field(str)
    alive = Field(bool, 'it has sent a heartbeat lately', source='is_alive')
    ready = Field(
        bool, 'all drivers have returned, and their devices are in Placement', source='is_ready'
    )
    last_heartbeat = Field(documents.MOMENT)
    drivers = Field([Driver])
    conflicts = Field(
        {str: str},
        'devices that another service claims in Placement: name of the provider -> the claim',
    )
    created_at = Field(documents.MOMENT)
    updated_at = Field(documents.MOMENT, nullable=True)
    links = documents.links('agents')


class AgentQuery(documents.Listing):
    hostname = Field(documents.FILTER)
    alive = Field(bool, source='is_alive')
    ready = Field(bool, source='is_ready')
    sort_key = documents.sort_key('hostname', 'last_heartbeat')


def ref(text: str) -> str:
    """Returns a uuid or the name of a host, as it is stored. Raises AgentNotFound if it can be
    neither."""
    if len(text) > documents.FILTER.max_length or '\0' in text:
        raise errors.AgentNotFound(ref=repr(text[:64]))
    return text.lower() if documents.UUID.matches(text) else text
