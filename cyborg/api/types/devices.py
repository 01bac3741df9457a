# SPDX-License-Identifier: Apache-2.0
"""Devices on the wire."""

import json
from collections.abc import Mapping

from cyborg import objects
from cyborg.api.types import documents
from cyborg.api.types.documents import Field


class BoardInfo(documents.Shown):
    """An object that is shown as JSON in a string; an empty one is null."""

    basetype, name = str, 'board-info'
    schema: documents.Schema = {'type': 'string'}

    def tobasetype(self, value: Mapping[str, str]) -> str | None:
        return json.dumps(value) if value else None


class Device(documents.Noun):
    uuid = Field(documents.UUID)
    type = Field(str)
    vendor = Field(str)
    model = Field(str, nullable=True)
    std_board_info = Field(BoardInfo(), 'JSON in a string', nullable=True)
    vendor_board_info = Field(BoardInfo(), 'JSON in a string', nullable=True)
    hostname = Field(str)
    created_at = Field(documents.MOMENT)
    updated_at = Field(documents.MOMENT, nullable=True)
    links = documents.links('devices')
    status = Field(documents.Enum(*objects.DeviceStatus), since=(2, 3))
    is_missing = Field(
        bool, 'gone from the bus, and kept because a server holds a part of it', since=(2, 4)
    )
    fault = Field(
        str,
        'why it is not given out now, in the words of its driver',
        nullable=True,
        since=(2, 4),
    )


class DeviceQuery(documents.Listing):
    type = Field(documents.FILTER)
    vendor = Field(documents.FILTER)
    model = Field(documents.FILTER)
    hostname = Field(documents.FILTER)
    status = Device.status.again()
    is_missing = Device.is_missing.again()
    sort_key = documents.sort_key('type', 'vendor', 'hostname')
