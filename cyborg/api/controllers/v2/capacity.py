# SPDX-License-Identifier: Apache-2.0
"""/v2/capacity"""

from typing import Any

from cyborg.api.controllers import base
from cyborg.api.expose import expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import documents
from cyborg.api.types.capacity import ModelCapacity


class Capacity(base.Collection):
    path = key = 'capacity'
    item = ModelCapacity

    @expose(documents.wrapped(capacity=[ModelCapacity]))
    @policy('cyborg:capacity:get_all')
    @since(2, 11)
    def get_all(self, request: Request) -> dict[str, Any]:
        """List the units of the cloud by model and resource class."""
        found = self.conductor.list_capacity(request.context)
        return {self.key: [self.as_document(each, request) for each in found]}
