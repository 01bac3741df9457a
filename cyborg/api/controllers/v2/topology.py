# SPDX-License-Identifier: Apache-2.0
"""/v2/topology"""

from http import HTTPStatus
from typing import Any

from cyborg import errors
from cyborg.api.controllers import base
from cyborg.api.expose import expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import documents
from cyborg.api.types.capacity import TopologyHost, TopologyQuery


class Topology(base.Collection):
    path = 'topology'
    key = 'hosts'
    item = TopologyHost

    @expose(
        documents.wrapped(hosts=[TopologyHost]), query=TopologyQuery, fails=(HTTPStatus.NOT_FOUND,)
    )
    @policy('cyborg:topology:get_all')
    @since(2, 11)
    def get_all(self, request: Request, query: TopologyQuery) -> dict[str, Any]:
        """Show a host with its devices, their deployables and units: free, held by whom, or
        withheld why."""
        hostname = query.given().get('hostname')
        if not hostname:
            raise errors.BadRequest('Name the host, in hostname=.')
        found = self.conductor.get_topology(request.context, hostname)
        return {self.key: [self.as_document(found, request)]}
