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
            parts, hosts = units.parts(session), units.hosts(session)
        return capacity.by_model(parts, capacity.Conditions(hosts, self.silent_since()))

    @exposed
    def get_topology(self, context: RequestContext, hostname: str) -> objects.HostUnits:
        with self.db.reader() as session:
            hosts = units.hosts(session, hostname)
            devices, reserved = units.tree(session, hostname)
        if not hosts and not devices:
            raise errors.AgentNotFound(ref=hostname)
        conditions = capacity.Conditions(hosts, self.silent_since())
        found = objects.HostUnits(
            hostname=hostname, is_alive=not conditions.is_silent(hostname), devices=devices
        )
        capacity.judge(found, reserved, conditions)
        return found
