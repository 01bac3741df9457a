# SPDX-License-Identifier: Apache-2.0
"""/v2/deployables"""

from http import HTTPStatus
from typing import Any

from cyborg import errors, objects
from cyborg.api import pages
from cyborg.api.expose import Unfinished, expose
from cyborg.api.requests import Request
from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas import deployables as schemas


class Deployables(pages.Collection):
    path = key = 'deployables'
    name, shape = 'Deployable', schemas.SHOWN

    @expose('GET', rule='cyborg:deployable:get_all', query=schemas.LIST,
            shown=shapes.page(key, name))
    def get_all(self, request: Request) -> dict[str, Any]:
        """List deployables, of one device, host or parent if asked."""
        return self.page(request, self.conductor.list_deployables, pages.filters(request))

    @expose('GET', '{uuid}', rule='cyborg:deployable:get_one', shown=shapes.ref(name))
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one."""
        uuid = checks.uuid(uuid, 'The deployable')
        return self.show(self.conductor.get_deployable(request.context, uuid), request)

    @expose('PATCH', '{uuid}/program', rule='cyborg:deployable:program', body=schemas.PROGRAM,
            shown=shapes.ref(name), can_last=True, fails=(HTTPStatus.CONFLICT,))
    def program(self, request: Request, uuid: str) -> dict[str, Any] | Unfinished:
        """Load an image into one that nobody uses."""
        return self._program(request, uuid)

    @expose('PATCH', '{uuid}/program/{same_uuid}', rule='cyborg:deployable:program',
            body=schemas.PROGRAM, shown=shapes.ref(name), can_last=True,
            fails=(HTTPStatus.CONFLICT,))
    def program_again(self, request: Request, uuid: str,
                      same_uuid: str) -> dict[str, Any] | Unfinished:
        """The same; the SDK puts the uuid into the path twice."""
        if uuid.lower() != same_uuid.lower():
            raise errors.BadRequest('Both uuids in the path must be that of the deployable.')
        return self._program(request, uuid)

    def _program(self, request: Request, uuid: str) -> dict[str, Any] | Unfinished:
        uuid = checks.uuid(uuid, 'The deployable')
        started = self.conductor.program_deployable(
            request.context, uuid, schemas.image_uuid(request.document))
        seen = self.waiter.program(request.context, started)
        shown = self.show(seen, request)
        is_unfinished = (seen.is_programming
                         and seen.program_task_uuid == started.program_task_uuid)
        return Unfinished(shown) if is_unfinished else shown

    def whole(self, deployable: objects.Deployable, request: Request) -> dict[str, Any]:
        return {
            'uuid': deployable.uuid,
            'name': deployable.name,
            'parent_id': deployable.parent_id,
            'parent_uuid': deployable.parent_uuid,
            'root_id': deployable.root_id,
            'root_uuid': deployable.root_uuid,
            'device_id': deployable.device_id,
            'device_uuid': deployable.device_uuid,
            'num_accelerators': deployable.num_accelerators,
            'rp_uuid': deployable.rp_uuid,
            'driver_name': deployable.driver_name,
            'bitstream_id': deployable.bitstream_id,
            'is_programmable': deployable.is_programmable,
            'program_image': deployable.program_image,
            'program_error': deployable.program_error,
            'program_progress': deployable.program_progress,
            'quarantine_reason': deployable.quarantine_reason,
            'attributes_list': deployable.attribute_list,
            **pages.stamps(deployable),
            'links': [request.link('v2', self.path, deployable.uuid),
                      request.link(self.path, deployable.uuid, rel='bookmark')],
        }
