# SPDX-License-Identifier: Apache-2.0
"""Deployables on the wire."""

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
    attributes_list=shapes.TEXT | {
        'description': 'JSON in a string: a list of objects with one key each'})
