# SPDX-License-Identifier: Apache-2.0
"""/v2/accelerator_requests"""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from cyborg import errors, objects
from cyborg.api.controllers import base
from cyborg.api.expose import action, expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import arqs, device_profiles, documents, rendering, validation
from cyborg.context import RequestContext
from cyborg.objects import arq_states

PATCH = arqs.PatchMap()


class Arqs(base.Collection):
    path, key = 'accelerator_requests', 'arqs'
    item = arqs.AcceleratorRequest

    @expose(documents.page(key, item), query=arqs.ArqQuery, fails=(HTTPStatus.LOCKED,))
    @policy('cyborg:arq:get_all')
    def get_all(self, request: Request, query: arqs.ArqQuery) -> dict[str, Any]:
        """List requests, of one server or resolved ones if asked."""
        filters = query.filters()
        is_resolved = filters.pop('bind_state', None) is not None
        instance = filters.get('instance_uuid')
        if is_resolved and not instance:
            states = {filters['state']} if 'state' in filters else arq_states.RESOLVED
            filters['state'] = sorted(states & arq_states.RESOLVED)
        fetch = self._list_resolved if is_resolved and instance else self.conductor.list_arqs
        return self.page(request, query, fetch, filters)

    def _list_resolved(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any]
    ) -> Sequence[objects.Arq]:
        """List requests of a server. Raises Locked if any of the server's is not resolved, also if
        the filters or the page leave it out: a client that waits for a server needs all of them."""
        mine = {'instance_uuid': filters['instance_uuid']}
        found: Sequence[objects.Arq] = self.conductor.list_arqs(context, mine, {})
        _refuse_unresolved(found)
        is_whole = filters == mine and page.keys() == {'limit'}
        return (
            found[: page['limit']] if is_whole else self.conductor.list_arqs(context, filters, page)
        )

    @expose(item)
    @policy('cyborg:arq:get_one')
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one."""
        uuid = validation.uuid(uuid, 'The accelerator request')
        return self.as_document(self.conductor.get_arq(request.context, uuid), request)

    @expose(arqs.History)
    @action('GET', '{uuid}/history')
    @policy('cyborg:arq:get_history')
    @since(2, 6)
    def history(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show what happened to one, also when it is gone."""
        uuid = validation.uuid(uuid, 'The accelerator request')
        steps = self.conductor.get_arq_history(request.context, uuid)
        return {'history': [rendering.render(step, arqs.Step, request) for step in steps]}

    @expose(
        documents.wrapped(arqs=[item]),
        body=arqs.NewArqs,
        status=HTTPStatus.CREATED,
        fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    @policy('cyborg:arq:create')
    def post(self, request: Request, body: arqs.NewArqs) -> dict[str, Any]:
        """Create one for each unit that a profile asks for."""
        name = body.device_profile_name
        if not device_profiles.is_name(name):
            raise errors.ProfileNotFound(names=repr(name[:64]))
        made = self.conductor.create_arqs(request.context, name)
        return {self.key: [self.as_document(arq, request) for arq in made]}

    @expose(
        body=PATCH,
        status=HTTPStatus.ACCEPTED,
        fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    @policy('cyborg:arq:update')
    def patch_all(self, request: Request, body: arqs.Patch) -> None:
        """Bind or unbind some, all or none."""
        self._patch(request, body)

    @expose(body=PATCH, status=HTTPStatus.ACCEPTED, fails=(HTTPStatus.CONFLICT,))
    @policy('cyborg:arq:update')
    def patch(self, request: Request, uuid: str, body: arqs.Patch) -> None:
        """The same; the SDK also puts one of the uuids into the path."""
        if uuid.lower() not in body.uuids:
            raise errors.BadRequest('The uuid in the path must be one of those in the body.')
        self._patch(request, body)

    def _patch(self, request: Request, patch: arqs.Patch) -> None:
        request.needs_service('Unbinding' if patch.unbound else 'Binding')
        if patch.names_project:
            request.needs((2, 1), 'The path /project_id')
            if not request.context.is_admin:
                raise errors.Forbidden('Only administrators may set /project_id.')
        if patch.unbound:
            self.conductor.unbind_arqs(request.context, patch.unbound)
        else:
            self.waiter.bind(request.context, patch.bindings)

    @expose(status=HTTPStatus.NO_CONTENT)
    @policy('cyborg:arq:delete')
    def delete(self, request: Request, uuid: str) -> None:
        """Delete one."""
        uuid = validation.uuid(uuid, 'The accelerator request')
        self.conductor.delete_arqs(request.context, [uuid])

    @expose(query=arqs.DeleteQuery, status=HTTPStatus.NO_CONTENT, fails=(HTTPStatus.NOT_FOUND,))
    @policy('cyborg:arq:delete')
    def delete_all(self, request: Request, query: arqs.DeleteQuery) -> None:
        """Delete those of a comma list, or those of a server."""
        match query.given():
            case {'instance': instance, **others} if not others:
                request.needs_service('Deleting the accelerator requests of a server')
                self.conductor.delete_instance_arqs(request.context, instance)
            case {'arqs': listed, **others} if not others:
                uuids = [
                    validation.uuid(uuid.strip(), 'Each of arqs') for uuid in listed.split(',')
                ]
                self.conductor.delete_arqs(request.context, list(dict.fromkeys(uuids)))
            case _:
                raise errors.BadRequest(
                    'Name the requests to delete, either in arqs= or in instance=.'
                )


def _refuse_unresolved(found: Iterable[objects.Arq]) -> None:
    """Raises Locked if a request is not resolved."""
    open_ones = [arq.uuid for arq in found if arq.state not in arq_states.RESOLVED]
    if open_ones:
        raise errors.Locked(f'Not resolved yet: {", ".join(open_ones)}; ask again.')
