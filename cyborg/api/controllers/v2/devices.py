# SPDX-License-Identifier: Apache-2.0
"""/v2/devices"""

import functools
from http import HTTPStatus
from typing import Any

from cyborg import errors
from cyborg.api.controllers import base
from cyborg.api.expose import action, expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import documents, rendering
from cyborg.api.types.devices import Device, DeviceQuery
from cyborg.api.types.hand_backs import HandBack, HandBackQuery, Release
from cyborg.objects import DeviceStatus


class Devices(base.Collection):
    path = key = 'devices'
    item = Device

    @expose(documents.page(key, Device), query=DeviceQuery)
    @policy('cyborg:device:get_all')
    def get_all(self, request: Request, query: DeviceQuery) -> dict[str, Any]:
        """List devices, of one type, vendor or host if asked."""
        return self.page(request, query, self.conductor.list_devices, query.filters())

    @expose(Device)
    @policy('cyborg:device:get_one')
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one."""
        return self.as_document(self.conductor.get_device(request.context, _known(uuid)), request)

    @expose(status=HTTPStatus.NO_CONTENT)
    @action('POST', '{uuid}/enable')
    @policy('cyborg:device:enable')
    def enable(self, request: Request, uuid: str) -> None:
        """Enable one."""
        self.conductor.set_device_status(request.context, _known(uuid), DeviceStatus.ENABLED)

    @expose(status=HTTPStatus.NO_CONTENT)
    @action('POST', '{uuid}/disable')
    @policy('cyborg:device:disable')
    def disable(self, request: Request, uuid: str) -> None:
        """Disable one: no new server is placed on it."""
        self.conductor.set_device_status(request.context, _known(uuid), DeviceStatus.MAINTAINING)

    @expose(documents.page('handbacks', HandBack), query=HandBackQuery)
    @action('GET', '{uuid}/handbacks')
    @policy('cyborg:device:get_handbacks')
    @since(2, 9)
    def handbacks(self, request: Request, uuid: str, query: HandBackQuery) -> dict[str, Any]:
        """List the hand-backs of its handles: how they were released and cleaned after requests."""
        uuid = _known(uuid)
        return self.page(
            request,
            query,
            functools.partial(self.conductor.list_hand_backs, device_uuid=uuid),
            query.filters(),
            path=f'{self.path}/{uuid}/handbacks',
            key='handbacks',
            item=HandBack,
        )

    @expose(HandBack, status=HTTPStatus.ACCEPTED, fails=(HTTPStatus.CONFLICT,))
    @action('POST', '{uuid}/handles/{handle}/clean')
    @policy('cyborg:device:clean_handle')
    @since(2, 9)
    def clean_handle(self, request: Request, uuid: str, handle: str) -> dict[str, Any]:
        """Have the host clean a quarantined handle again."""
        device = _known(uuid)
        made = self.conductor.clean_handle(request.context, device, _known_handle(device, handle))
        return rendering.render(made, HandBack, request)

    @expose(HandBack, body=Release, fails=(HTTPStatus.CONFLICT,))
    @action('POST', '{uuid}/handles/{handle}/release')
    @policy('cyborg:device:release_handle')
    @since(2, 9)
    def release_handle(
        self, request: Request, uuid: str, handle: str, body: Release
    ) -> dict[str, Any]:
        """Offer a quarantined handle again without cleaning it."""
        device, reason = _known(uuid), body.reason.strip()
        if not reason:
            raise errors.BadRequest('The body: reason must not be blank.')
        made = self.conductor.release_handle(
            request.context, device, _known_handle(device, handle), reason
        )
        return rendering.render(made, HandBack, request)


def _known(uuid: str) -> str:
    """Returns the uuid as it is stored. Raises DeviceNotFound if it is not a uuid."""
    if not documents.UUID.matches(uuid):
        raise errors.DeviceNotFound(uuid=uuid[:64])
    return uuid.lower()


def _known_handle(device: str, uuid: str) -> str:
    """Returns the uuid as it is stored. Raises HandleNotFound if it is not a uuid."""
    if not documents.UUID.matches(uuid):
        raise errors.HandleNotFound(device=device, uuid=uuid[:64])
    return uuid.lower()
