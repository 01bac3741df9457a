# SPDX-License-Identifier: Apache-2.0
"""/v2/deployables"""

from http import HTTPStatus
from typing import Any

from cyborg import errors
from cyborg.api.controllers import base
from cyborg.api.expose import Unfinished, action, expose, policy
from cyborg.api.request import Request
from cyborg.api.types import deployables, documents, validation

PATCH = deployables.ProgramPatch()


class Deployables(base.Collection):
    path = key = 'deployables'
    item = deployables.Deployable

    @expose(documents.page(key, item), query=deployables.DeployableQuery)
    @policy('cyborg:deployable:get_all')
    def get_all(self, request: Request, query: deployables.DeployableQuery) -> dict[str, Any]:
        """List deployables, of one device, host or parent if asked."""
        return self.page(request, query, self.conductor.list_deployables, query.filters())

    @expose(item)
    @policy('cyborg:deployable:get_one')
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one."""
        uuid = validation.uuid(uuid, 'The deployable')
        return self.as_document(self.conductor.get_deployable(request.context, uuid), request)

    @expose(item, body=PATCH, can_last=True, fails=(HTTPStatus.CONFLICT,))
    @action('PATCH', '{uuid}/program')
    @policy('cyborg:deployable:program')
    def program(
        self, request: Request, uuid: str, body: deployables.Image
    ) -> dict[str, Any] | Unfinished:
        """Load an image into one that nobody uses."""
        return self._program(request, uuid, body)

    @expose(item, body=PATCH, can_last=True, fails=(HTTPStatus.CONFLICT,))
    @action('PATCH', '{uuid}/program/{same_uuid}')
    @policy('cyborg:deployable:program')
    def program_again(
        self, request: Request, uuid: str, same_uuid: str, body: deployables.Image
    ) -> dict[str, Any] | Unfinished:
        """The same; the SDK puts the uuid into the path twice."""
        if uuid.lower() != same_uuid.lower():
            raise errors.BadRequest('Both uuids in the path must be that of the deployable.')
        return self._program(request, uuid, body)

    def _program(
        self, request: Request, uuid: str, image: deployables.Image
    ) -> dict[str, Any] | Unfinished:
        uuid = validation.uuid(uuid, 'The deployable')
        seen, is_loaded = self.waiter.program(request.context, uuid, image.image_uuid)
        shown = self.as_document(seen, request)
        return shown if is_loaded else Unfinished(shown)
