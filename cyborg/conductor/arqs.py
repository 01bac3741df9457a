# SPDX-License-Identifier: Apache-2.0
"""Accelerator requests: create, bind, unbind, delete. Each is one transaction."""

from typing import Any

from oslo_log import log

from cyborg import errors, metrics, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.conductor.repeats import create_once
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import arqs as arqs_db
from cyborg.db.sqlalchemy import device_profiles, history
from cyborg.db.sqlalchemy.engine import Session

LOG = log.getLogger(__name__)


class Arqs(Endpoint):
    @exposed
    def create_arqs(self, context: RequestContext, profile_name: str) -> list[objects.Arq]:
        """Create a request for each unit that the profile asks for, in the order of its groups."""
        allowance = self.allowance(context.project_id)

        def create(unit: UnitOfWork) -> list[objects.Arq]:
            profile = device_profiles.named(unit.session, profile_name, self.audience(context))
            return arqs.create(unit, profile.groups, context.project_id, profile, allowance)

        def show(session: Session, uuids: list[str]) -> list[objects.Arq]:
            return arqs_db.find(session, self.scope(context), {'uuid': uuids}, {})

        return create_once(self, context, ['create_arqs', profile_name], create, show)

    @exposed
    def list_arqs(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any]
    ) -> list[objects.Arq]:
        with self.db.reader() as session:
            return arqs_db.find(session, self.scope(context), filters, page)

    @exposed
    def get_arq(self, context: RequestContext, uuid: str) -> objects.Arq:
        with self.db.reader() as session:
            return arqs_db.get(session, self.scope(context), uuid)

    @exposed
    def get_arq_history(self, context: RequestContext, uuid: str) -> list[objects.Transition]:
        """Returns the steps of a request, also after it was deleted."""
        with self.db.reader() as session:
            steps = history.of(session, uuid, self.scope(context).project_id)
        if not steps:
            raise errors.ArqNotFound(uuids=uuid)
        return steps

    @exposed
    def bind_arqs(
        self, context: RequestContext, bindings: list[objects.Binding]
    ) -> list[objects.Arq]:
        """Reserve what each request asks for, and give the hosts their tasks.

        Returns the state that each request has reached, and why.
        """
        try:
            try:
                return self._bind(context, bindings)
            except arqs.ServersHold as others:
                return self._bind(context, bindings, set(filter(self._is_idle, others.servers)))
        except errors.HandleNotClean:  # the API repeats the call
            raise
        except errors.CyborgError as error:
            refusal = error
        # not inside "except": oslo.log would append the same error to each line of the log
        metrics.REFUSED_BINDS.labels(type(refusal).__name__).inc(len(bindings))
        with self.unit_of_work(context) as unit:
            arqs.note_refusal(unit, self.scope(context), bindings, refusal.faultstring)
        raise refusal

    def _bind(
        self, context: RequestContext, bindings: list[objects.Binding], idle: set[str] | None = None
    ) -> list[objects.Arq]:
        try:
            with self.unit_of_work(context) as unit:
                _name_owners(unit.session, context, bindings)
                bound = arqs.bind(unit, self.scope(context), bindings, self.deadlines(), idle)
                return [
                    objects.Arq(uuid=arq.uuid, state=arq.state, reason=arq.reason) for arq in bound
                ]
        except (errors.HandleNotClean, errors.CleanUpOwed):
            with self.unit_of_work(context) as unit:
                arqs.make_way(unit, bindings, idle or ())
            raise

    def _is_idle(self, server: str) -> bool:
        """Returns whether a server is known to run nowhere: it is shelved and offloaded. A failed
        unshelve leaves requests of such a server. False if Nova does not answer."""
        try:
            return self.nova.is_offloaded(server)
        except errors.Unavailable as error:
            LOG.warning('The handles of server %s are kept: %s', server, error.faultstring)
            return False

    @exposed
    def unbind_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Unbind at once, without waiting for the host."""
        with self.unit_of_work(context) as unit:
            arqs.unbind(unit, self.scope(context), uuids)

    @exposed
    def delete_arqs(self, context: RequestContext, uuids: list[str]) -> None:
        """Delete the requests that exist; raises ArqNotFound for the others."""
        with self.unit_of_work(context) as unit:
            missing = arqs.delete(unit, self.scope(context), uuids, even_bound=context.is_service)
        if missing:
            raise errors.ArqNotFound(uuids=', '.join(missing))

    @exposed
    def delete_instance_arqs(self, context: RequestContext, instance_uuid: str) -> None:
        with self.unit_of_work(context) as unit:
            arqs.delete_of_instance(unit, instance_uuid)


def _name_owners(
    session: Session, context: RequestContext, bindings: list[objects.Binding]
) -> None:
    """Set the project of the requests to that of the caller, unless the caller names another.

    A caller who sees all projects, such as an administrator who evacuates a server, binds requests
    of the server's own project. The owner of the server must find them afterwards.
    """
    unnamed = [binding for binding in bindings if not binding.project_id]
    owners = (
        history.owners(session, {binding.instance_uuid for binding in unnamed})
        if context.sees_all_projects
        else {}
    )
    for binding in unnamed:
        binding.project_id = owners.get(binding.instance_uuid, context.project_id)
