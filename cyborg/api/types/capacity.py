# SPDX-License-Identifier: Apache-2.0
"""Capacity and topology on the wire."""

from cyborg.api.types import documents
from cyborg.api.types.availability import REASONS
from cyborg.api.types.devices import Device
from cyborg.api.types.documents import Field
from cyborg.objects import Obstacle


class ModelCapacity(documents.Noun):
    type = Field(str)
    vendor = Field(str)
    model = Field(str, nullable=True)
    resource_class = Field(str)
    hosts = Field(documents.COUNT, 'hosts that have such units')
    units = Field(documents.COUNT, 'all of them: in use, free and withheld')
    in_use = Field(documents.COUNT, 'held by accelerator requests')
    free = Field(documents.COUNT)
    withheld = Field(REASONS, 'why the others cannot be used: number of units by reason')


class Unit(documents.Document):
    attach_handle_uuid = Field(documents.UUID, source='uuid')
    attach_handle_type = Field(str, source='type')
    attach_handle_info = Field({str: str}, 'its address', source='info')
    withheld = Field(
        documents.Enum(*Obstacle), 'why it cannot be used, if no request holds it', nullable=True
    )
    arq_uuid = Field(documents.UUID, 'the accelerator request that holds it', nullable=True)
    arq_state = Field(str, nullable=True)
    instance_uuid = Field(documents.UUID, 'the server that holds it', nullable=True)
    project_id = Field(str, nullable=True)


class TopologyDeployable(documents.Document):
    uuid = Field(documents.UUID)
    name = Field(str)
    parent_uuid = Field(documents.UUID, 'the deployable that it is a part of', nullable=True)
    rp_uuid = Field(documents.UUID, 'its resource provider in Placement')
    resource_class = Field(str, nullable=True)
    traits = Field([str])
    units = Field([Unit], 'a unit without withheld and arq_uuid is free')


class TopologyDevice(documents.Document):
    uuid = Field(documents.UUID)
    type = Field(str)
    vendor = Field(str)
    model = Field(str, nullable=True)
    status = Field(Device.status.datatype)
    is_missing = Field(bool)
    fault = Field(str, nullable=True)
    deployables = Field([TopologyDeployable])


class TopologyHost(documents.Noun):
    hostname = Field(str)
    alive = Field(bool, 'its agent has sent a heartbeat lately', source='is_alive')
    devices = Field([TopologyDevice])


class TopologyQuery(documents.Body):
    hostname = Field(documents.FILTER, 'the host to show; needed')
