# SPDX-License-Identifier: Apache-2.0
"""/v2/deployables"""

import json
from typing import Any

from cyborg import objects
from cyborg.api import pages
from cyborg.api.expose import expose
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
            'attributes_list': json.dumps(
                [{attribute.key: attribute.value} for attribute in deployable.attributes]),
            **pages.stamps(deployable),
            'links': [request.link('v2', self.path, deployable.uuid),
                      request.link(self.path, deployable.uuid, rel='bookmark')],
        }
