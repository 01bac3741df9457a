# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests: create, bind, unbind, delete. Each is one transaction."""

from typing import Any

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import arqs
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import device_profiles, history
from cyborg.db.sqlalchemy.engine import Session

LOG = log.getLogger(__name__)


class Arqs(Endpoint):

    @exposed
    def create_arqs(self, context: RequestContext, profile_name: str) -> list[objects.Arq]:
        """One request per unit the profile asks for, in group order."""
        with self.unit_of_work(context) as unit:
            profile = device_profiles.named(unit.session, profile_name,
                                            self.audience(context))
            return arqs.create(unit, profile.groups, context.project_id, profile)

    @exposed
    def list_arqs(self, context: RequestContext, filters: dict[str, Any],
                  page: dict[str, Any]) -> list[objects.Arq]:
        with self.db.reader() as session:
            return arqs_db.find(session, self.scope(context), filters, page)

    @exposed
    def get_arq(self, context: RequestContext, uuid: str) -> objects.Arq:
        with self.db.reader() as session:
            return arqs_db.get(session, self.scope(context), uuid)

    @exposed
    def get_arq_history(self, context: RequestContext, uuid: str) -> list[objects.Transition]:
        """Its steps, also when it is gone already."""
        with self.db.reader() as session:
            steps = history.of(session, uuid, self.scope(context).project_id)
        if not steps:
            raise errors.ArqNotFound(uuids=uuid)
        return steps

    @exposed
    def bind_arqs(self, context: RequestContext,
                  bindings: list[objects.Binding]) -> list[objects.Arq]:
        """Reserve what each request asks for, and give the hosts their tasks.

        Returns the state that each request has reached, and why.
        """
        try:
            return self._bind(context, bindings)
        except arqs.ServersHold as others:
            return self._bind(context, bindings, set(filter(self._is_idle, others.servers)))

    def _bind(self, context: RequestContext, bindings: list[objects.Binding],
              idle: set[str] | None = None) -> list[objects.Arq]:
        try:
            with self.unit_of_work(context) as unit:
                _name_owners(unit.session, context, bindings)
                bound = arqs.bind(unit, self.scope(context), bindings,
                                      self.deadlines(), idle)
                return [objects.Arq(uuid=arq.uuid, state=arq.state, reason=arq.reason)
                        for arq in bound]
        except (errors.HandleNotClean, errors.CleanUpOwed):
            with self.unit_of_work(context) as unit:
                arqs.make_way(unit, bindings, idle or ())
            raise

    def _is_idle(self, server: str) -> bool:
        """Does a server run nowhere? A shelved one does not, and an unshelve that failed leaves
        its requests behind. A server of which Nova does not tell may run."""
        try:
            return self.nova.is_offloaded(server)
        except errors.Unavailable as error:
            LOG.warning('What server %s holds is kept: %s', server, error.faultstring)
            return False

    @exposed
    def unbind_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Unbound at once, whatever the host does."""
        with self.unit_of_work(context) as unit:
            arqs.unbind(unit, self.scope(context), uuids)

    @exposed
    def delete_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Delete those that exist, then say which did not."""
        with self.unit_of_work(context) as unit:
            missing = arqs.delete(unit, self.scope(context), uuids,
                                       even_bound=context.is_service)
        if missing:
            raise errors.ArqNotFound(uuids=', '.join(missing))

    @exposed
    def delete_instance_arqs(self, context: RequestContext, instance_uuid: str) -> None:
        with self.unit_of_work(context) as unit:
            arqs.delete_of_instance(unit, instance_uuid)


def _name_owners(session: Session, context: RequestContext,
                 bindings: list[objects.Binding]) -> None:
    """Give the requests to the caller's project, unless the caller names another.

    An administrator who evacuates somebody's server acts on requests of that server's project:
    afterwards its owner must find them.
    """
    unnamed = [binding for binding in bindings if not binding.project_id]
    owners = history.owners(session, {binding.instance_uuid for binding in unnamed}
                            ) if context.sees_all_projects else {}
    for binding in unnamed:
        binding.project_id = owners.get(binding.instance_uuid, context.project_id)
