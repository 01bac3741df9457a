# SPDX-License-Identifier: Apache-2.0
"""/v2/devices"""

import json
from http import HTTPStatus
from typing import Any

from cyborg import errors, objects
from cyborg.api import pages
from cyborg.api.expose import expose
from cyborg.api.requests import Request
from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas import devices as schemas
from cyborg.objects import DeviceStatus


class Devices(pages.Collection):
    path = key = 'devices'
    name, shape = 'Device', schemas.SHOWN

    @expose('GET', rule='cyborg:device:get_all', query=schemas.LIST,
            shown=shapes.page(key, name))
    def get_all(self, request: Request) -> dict[str, Any]:
        """List devices, of one type, vendor or host if asked."""
        return self.page(request, self.conductor.list_devices, pages.filters(request))

    @expose('GET', '{uuid}', rule='cyborg:device:get_one', shown=shapes.ref(name))
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one."""
        return self.show(self.conductor.get_device(request.context, _known(uuid)), request)

    @expose('POST', '{uuid}/enable', rule='cyborg:device:enable', status=HTTPStatus.NO_CONTENT)
    def enable(self, request: Request, uuid: str) -> None:
        """Put one back into service."""
        self.conductor.set_device_status(request.context, _known(uuid), DeviceStatus.ENABLED)

    @expose('POST', '{uuid}/disable', rule='cyborg:device:disable',
            status=HTTPStatus.NO_CONTENT)
    def disable(self, request: Request, uuid: str) -> None:
        """Keep one for maintenance: nothing new is placed on it."""
        self.conductor.set_device_status(
            request.context, _known(uuid), DeviceStatus.MAINTAINING)

    def whole(self, device: objects.Device, request: Request) -> dict[str, Any]:
        return {
            'uuid': device.uuid,
            'type': device.type,
            'vendor': device.vendor,
            'model': device.model,
            'std_board_info': _in_a_string(device.std_board_info),
            'vendor_board_info': _in_a_string(device.vendor_board_info),
            'hostname': device.hostname,
            **pages.stamps(device),
            'links': [request.link('v2', self.path, device.uuid)],
            'status': device.status,
            'is_missing': device.is_missing,
            'fault': device.fault,
        }


def _known(uuid: str) -> str:
    """What is no uuid names no device."""
    if not checks.is_uuid(uuid):
        raise errors.DeviceNotFound(uuid=uuid[:64])
    return uuid.lower()


def _in_a_string(info: dict[str, str]) -> str | None:
    return json.dumps(info) if info else None
