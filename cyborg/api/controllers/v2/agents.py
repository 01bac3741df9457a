# SPDX-License-Identifier: Apache-2.0
"""/v2/agents"""

from typing import Any

from cyborg.api.controllers import base
from cyborg.api.expose import expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import agents, documents


class Agents(base.Collection):
    path = key = 'agents'
    item = agents.Agent

    @expose(documents.page(key, item), query=agents.AgentQuery)
    @policy('cyborg:agent:get_all')
    @since(2, 4)
    def get_all(self, request: Request, query: agents.AgentQuery) -> dict[str, Any]:
        """List the agents of all hosts."""
        return self.page(request, query, self.conductor.list_agents, query.filters())

    @expose(item)
    @policy('cyborg:agent:get_one')
    @since(2, 4)
    def get_one(self, request: Request, ref: str) -> dict[str, Any]:
        """Show one, by uuid or by the name of its host."""
        found = self.conductor.get_agent(request.context, agents.ref(ref))
        return self.as_document(found, request)
