# SPDX-License-Identifier: Apache-2.0
"""Deployables on the wire, and the PATCH that loads an image into one."""

from typing import Any

from cyborg.api.types import documents
from cyborg.api.types.documents import Field


class Deployable(documents.Noun):
    uuid = Field(documents.UUID)
    name = Field(str, 'also of the resource provider')
    parent_id = Field(documents.ID, nullable=True)
    parent_uuid = Field(documents.UUID, nullable=True, since=(2, 4))
    root_id = Field(documents.ID, nullable=True)
    root_uuid = Field(documents.UUID, nullable=True, since=(2, 4))
    device_id = Field(documents.ID)
    device_uuid = Field(documents.UUID, since=(2, 4))
    num_accelerators = Field(documents.COUNT)
    rp_uuid = Field(documents.UUID, 'the resource provider', nullable=True)
    driver_name = Field(str, nullable=True)
    bitstream_id = Field(str, 'the image that was loaded last', nullable=True)
    is_programmable = Field(bool, 'its driver can load images into it', since=(2, 7))
    program_image = Field(
        documents.UUID,
        'the image that is being loaded, if the request names it by its id',
        nullable=True,
        since=(2, 7),
    )
    program_error = Field(
        str, 'why the last image could not be loaded', nullable=True, since=(2, 7)
    )
    program_progress = Field(
        str,
        'how far the loading of an image has got; null if none is being loaded',
        nullable=True,
        since=(2, 8),
    )
    quarantine_reason = Field(
        str,
        'why a part of it could not be cleaned after a request; that part is quarantined until an '
        'operator has decided',
        nullable=True,
        since=(2, 8),
    )
    attributes_list = Field(
        str, 'JSON in a string: a list of objects with one key each', source='attribute_list'
    )
    created_at = Field(documents.MOMENT)
    updated_at = Field(documents.MOMENT, nullable=True)
    links = documents.links('deployables', has_bookmark=True)


class DeployableQuery(documents.Listing):
    name = Field(documents.FILTER)
    device_id = Field(documents.ID)
    parent_id = Field(documents.ID)
    root_id = Field(documents.ID)
    rp_uuid = Field(documents.UUID)
    driver_name = Field(documents.FILTER)
    bitstream_id = Field(documents.FILTER)
    device_uuid = Field(documents.UUID, since=(2, 4))
    parent_uuid = Field(documents.UUID, since=(2, 4))
    root_uuid = Field(documents.UUID, since=(2, 4))
    hostname = Field(documents.FILTER, since=(2, 4))
    sort_key = documents.sort_key('name')


class Image(documents.Body):
    image_uuid = Field(documents.UUID, mandatory=True)


class ProgramOperation(documents.Body):
    op = Field(documents.Enum('add', 'replace'), mandatory=True)
    path = Field(documents.Enum('/program'), mandatory=True)
    value = Field(
        documents.ListOf(Image, minItems=1, maxItems=1), 'the image, in Glance', mandatory=True
    )


EXAMPLE = {
    'op': 'replace',
    'path': '/program',
    'value': [{'image_uuid': '4f0c5ab1-3f5c-4b7e-9a35-0b1c7c2d9f10'}],
}


class ProgramPatch(documents.UserType):
    """A JSON patch that names the one image to be loaded."""

    basetype, name = list, 'program-patch'
    schema: documents.Schema = documents.ListOf(
        ProgramOperation, minItems=1, maxItems=1, examples=[[EXAMPLE]]
    ).schema

    def validate(self, value: list[dict[str, Any]]) -> Image:
        """Returns the image."""
        [operation] = value
        [image] = operation['value']
        return Image.of(image)
