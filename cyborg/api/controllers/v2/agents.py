# SPDX-License-Identifier: Apache-2.0
"""/v2/agents"""

from typing import Any

from cyborg import objects
from cyborg.api import pages
from cyborg.api.expose import expose
from cyborg.api.requests import Request
from cyborg.api.schemas import agents as schemas
from cyborg.api.schemas import shapes


class Agents(pages.Collection):
    path = key = 'agents'
    name, shape = 'Agent', schemas.SHOWN

    @expose('GET', rule='cyborg:agent:get_all', query=schemas.LIST,
            shown=shapes.page(key, name), since=schemas.SINCE)
    def get_all(self, request: Request) -> dict[str, Any]:
        """List the agents of all hosts."""
        filters = {schemas.STORED.get(name, name): value
                   for name, value in pages.filters(request).items()}
        return self.page(request, self.conductor.list_agents, filters)

    @expose('GET', '{ref}', rule='cyborg:agent:get_one', shown=shapes.ref(name),
            since=schemas.SINCE)
    def get_one(self, request: Request, ref: str) -> dict[str, Any]:
        """Show one, by uuid or by the name of its host."""
        return self.show(self.conductor.get_agent(request.context, schemas.ref(ref)), request)

    def whole(self, agent: objects.Agent, request: Request) -> dict[str, Any]:
        return {
            'uuid': agent.uuid,
            'hostname': agent.hostname,
            'alive': agent.is_alive,
            'ready': agent.is_ready,
            'last_heartbeat': pages.moment(agent.last_heartbeat),
            'drivers': [{'name': driver.name, 'status': driver.status, 'error': driver.error}
                        for driver in agent.drivers],
            'conflicts': agent.conflicts,
            **pages.stamps(agent),
            'links': [request.link('v2', self.path, agent.uuid)],
        }
