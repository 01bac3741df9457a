# SPDX-License-Identifier: Apache-2.0
"""Deployables on the wire, and how a PATCH says what is loaded into them."""

from typing import Any

from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas.shapes import since

UUID = since((2, 4), checks.UUID)
UUID_OR_NULL = since((2, 4), shapes.or_null(checks.UUID))
ID_OR_NULL = shapes.or_null(shapes.ID)

LIST = shapes.listing(
    'name', name=shapes.FILTER, device_id=shapes.ID, parent_id=shapes.ID, root_id=shapes.ID,
    rp_uuid=checks.UUID, driver_name=shapes.FILTER, bitstream_id=shapes.FILTER,
    device_uuid=UUID, parent_uuid=UUID, root_uuid=UUID,
    hostname=since((2, 4), shapes.FILTER))

SHOWN = shapes.item(
    name=shapes.TEXT | {'description': 'also of the resource provider'},
    parent_id=ID_OR_NULL,
    parent_uuid=UUID_OR_NULL,
    root_id=ID_OR_NULL,
    root_uuid=UUID_OR_NULL,
    device_id=shapes.ID,
    device_uuid=UUID,
    num_accelerators={'type': 'integer', 'minimum': 0},
    rp_uuid=shapes.or_null(checks.UUID) | {'description': 'the resource provider'},
    driver_name=shapes.TEXT_OR_NULL,
    bitstream_id=shapes.TEXT_OR_NULL | {'description': 'the image that was loaded last'},
    is_programmable=since((2, 7), shapes.FLAG | {
        'description': 'its driver can load images into it'}),
    program_image=since((2, 7), shapes.or_null(checks.UUID) | {
        'description': 'the image that is being loaded'}),
    program_error=since((2, 7), shapes.TEXT_OR_NULL | {
        'description': 'why the last image could not be loaded'}),
    program_progress=since((2, 8), shapes.TEXT_OR_NULL | {
        'description': 'how far the loading of an image has got'}),
    quarantine_reason=since((2, 8), shapes.TEXT_OR_NULL | {
        'description': 'why a part of it could not be cleaned after a request; nobody gets that '
                       'part before an operator has decided'}),
    attributes_list=shapes.TEXT | {
        'description': 'JSON in a string: a list of objects with one key each'})

IMAGE = {'type': 'object', 'required': ['image_uuid'], 'properties': {'image_uuid': checks.UUID}}
PROGRAM = {
    'type': 'array', 'minItems': 1, 'maxItems': 1,
    'items': {
        'type': 'object', 'required': ['op', 'path', 'value'], 'properties': {
            'op': {'type': 'string', 'enum': ['add', 'replace']},
            'path': {'type': 'string', 'enum': ['/program']},
            'value': {'type': 'array', 'minItems': 1, 'maxItems': 1, 'items': IMAGE,
                      'description': 'the image, in Glance'},
        }},
    'examples': [[{'op': 'replace', 'path': '/program', 'value': [
        {'image_uuid': '4f0c5ab1-3f5c-4b7e-9a35-0b1c7c2d9f10'}]}]]}


def image_uuid(patch: list[dict[str, Any]]) -> str:
    """The one image that a PATCH names."""
    [operation] = patch
    [image] = operation['value']
    return str(image['image_uuid']).lower()
