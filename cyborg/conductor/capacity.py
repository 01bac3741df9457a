# SPDX-License-Identifier: Apache-2.0
"""Capacity: the units of the cloud, as the conductor shows them to the API."""

from cyborg import errors, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import capacity
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import units


class Capacity(Endpoint):
    @exposed
    def list_capacity(self, context: RequestContext) -> list[objects.ModelCapacity]:
        with self.db.reader() as session:
            parts = units.parts(session, self.silent_since())
        return capacity.by_model(parts)

    @exposed
    def get_topology(self, context: RequestContext, hostname: str) -> objects.HostUnits:
        with self.db.reader() as session:
            host = units.host(session, hostname)
            devices, reserved = units.tree(session, hostname)
        if host is None and not devices:
            raise errors.AgentNotFound(ref=hostname)
        found = objects.HostUnits(
            hostname=hostname,
            is_alive=not capacity.is_silent(host, self.silent_since()),
            devices=devices,
        )
        capacity.judge(found, reserved, {} if host is None else host.conflicts)
        return found
