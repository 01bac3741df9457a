# SPDX-License-Identifier: Apache-2.0
"""Agents, as the conductor shows them to the API."""

from typing import Any

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import agents


class Agents(Endpoint):
    @exposed
    def list_agents(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any]
    ) -> list[objects.Agent]:
        with self.db.reader() as session:
            return agents.find(session, self.silent_since(), filters, page)

    @exposed
    def get_agent(self, context: RequestContext, ref: str) -> objects.Agent:
        with self.db.reader() as session:
            return agents.get(session, self.silent_since(), ref)
