# SPDX-License-Identifier: Apache-2.0
"""Devices on the wire."""

from cyborg import objects
from cyborg.api.schemas import shapes
from cyborg.api.schemas.shapes import since

STATUS = since((2, 3), {'type': 'string', 'enum': list(objects.DeviceStatus)})
IS_MISSING = since((2, 4), shapes.FLAG | {
    'description': 'gone from the bus, and kept because a server holds a part of it'})

LIST = shapes.listing(
    'type', 'vendor', 'hostname', type=shapes.FILTER, vendor=shapes.FILTER,
    model=shapes.FILTER, hostname=shapes.FILTER, status=STATUS, is_missing=IS_MISSING)

SHOWN = shapes.item(
    type=shapes.TEXT,
    vendor=shapes.TEXT,
    model=shapes.TEXT_OR_NULL,
    std_board_info=shapes.TEXT_OR_NULL | {'description': 'JSON in a string'},
    vendor_board_info=shapes.TEXT_OR_NULL | {'description': 'JSON in a string'},
    hostname=shapes.TEXT,
    status=STATUS,
    is_missing=IS_MISSING,
    fault=since((2, 4), shapes.TEXT_OR_NULL | {
        'description': 'why it is not given out now, in the words of its driver'}))
