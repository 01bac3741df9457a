# SPDX-License-Identifier: Apache-2.0
"""/v2/accelerator_requests"""

from http import HTTPStatus
from typing import Any

from cyborg import errors, objects
from cyborg.api import pages
from cyborg.api.expose import expose
from cyborg.api.requests import Request
from cyborg.api.schemas import arqs as schemas
from cyborg.api.schemas import checks, device_profiles, shapes
from cyborg.objects import arq_states


class Arqs(pages.Collection):
    path, key = 'accelerator_requests', 'arqs'
    name, shape = 'AcceleratorRequest', schemas.SHOWN

    @expose('GET', rule='cyborg:arq:get_all', query=schemas.LIST, shown=shapes.page(key, name),
            fails=(HTTPStatus.LOCKED,))
    def get_all(self, request: Request) -> dict[str, Any]:
        """List requests, of one server or resolved ones if asked."""
        filters = pages.filters(request)
        is_resolved = filters.pop('bind_state', None) is not None
        if 'instance' in filters:
            filters['instance_uuid'] = filters.pop('instance')
        elif is_resolved:
            states = {filters['state']} if 'state' in filters else arq_states.RESOLVED
            filters['state'] = sorted(states & arq_states.RESOLVED)
        body = self.page(request, self.conductor.list_arqs, filters)
        if is_resolved and 'instance_uuid' in filters:
            _refuse_unresolved(body[self.key])
        return body

    @expose('GET', '{uuid}', rule='cyborg:arq:get_one', shown=shapes.ref(name))
    def get_one(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show one."""
        uuid = checks.uuid(uuid, 'The accelerator request')
        return self.show(self.conductor.get_arq(request.context, uuid), request)

    @expose('GET', '{uuid}/history', rule='cyborg:arq:get_history', shown=schemas.HISTORY,
            since=schemas.HISTORY_SINCE)
    def history(self, request: Request, uuid: str) -> dict[str, Any]:
        """Show what happened to one, also when it is gone."""
        uuid = checks.uuid(uuid, 'The accelerator request')
        return {'history': [_step(step) for step in
                            self.conductor.get_arq_history(request.context, uuid)]}

    @expose('POST', rule='cyborg:arq:create', body=schemas.CREATE, shown=shapes.items(key, name),
            status=HTTPStatus.CREATED, fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT))
    def post(self, request: Request) -> dict[str, Any]:
        """Create one for each unit that a profile asks for."""
        name = request.document['device_profile_name']
        if not device_profiles.is_name(name):
            raise errors.ProfileNotFound(names=repr(name[:64]))
        made = self.conductor.create_arqs(request.context, name)
        return {self.key: [self.show(arq, request) for arq in made]}

    @expose('PATCH', rule='cyborg:arq:update', body=schemas.PATCH, status=HTTPStatus.ACCEPTED,
            fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT))
    def patch_all(self, request: Request) -> None:
        """Bind or unbind some, all or none."""
        self._patch(request, schemas.patch(request.document))

    @expose('PATCH', '{uuid}', rule='cyborg:arq:update', body=schemas.PATCH,
            status=HTTPStatus.ACCEPTED, fails=(HTTPStatus.CONFLICT,))
    def patch(self, request: Request, uuid: str) -> None:
        """The same; the SDK also puts one of the uuids into the path."""
        patch = schemas.patch(request.document)
        if uuid.lower() not in patch.uuids:
            raise errors.BadRequest('The uuid in the path must be one of those in the body.')
        self._patch(request, patch)

    def _patch(self, request: Request, patch: schemas.Patch) -> None:
        request.needs_service('Unbinding' if patch.unbound else 'Binding')
        if patch.names_project:
            request.needs((2, 1), 'The path /project_id')
            if not request.context.is_admin:
                raise errors.Forbidden('Only administrators may say /project_id.')
        if patch.unbound:
            self.conductor.unbind_arqs(request.context, patch.unbound)
        else:
            self.waiter.bind(request.context, patch.bindings)

    @expose('DELETE', '{uuid}', rule='cyborg:arq:delete', status=HTTPStatus.NO_CONTENT)
    def delete(self, request: Request, uuid: str) -> None:
        """Delete one."""
        uuid = checks.uuid(uuid, 'The accelerator request')
        self.conductor.delete_arqs(request.context, [uuid])

    @expose('DELETE', rule='cyborg:arq:delete', query=schemas.DELETE,
            status=HTTPStatus.NO_CONTENT, fails=(HTTPStatus.NOT_FOUND,))
    def delete_all(self, request: Request) -> None:
        """Delete those of a comma list, or those of a server."""
        match request.query:
            case {'instance': instance, **others} if not others:
                request.needs_service('Deleting the accelerator requests of a server')
                self.conductor.delete_instance_arqs(request.context, instance)
            case {'arqs': listed, **others} if not others:
                uuids = [checks.uuid(uuid.strip(), 'Each of arqs') for uuid in listed.split(',')]
                self.conductor.delete_arqs(request.context, list(dict.fromkeys(uuids)))
            case _:
                raise errors.BadRequest('Say which: either in arqs= or in instance=.')

    def whole(self, arq: objects.Arq, request: Request) -> dict[str, Any]:
        return {
            'uuid': arq.uuid,
            'state': arq.state,
            'device_profile_name': arq.device_profile_name,
            'device_profile_group_id': arq.device_profile_group_id,
            'hostname': arq.hostname,
            'device_rp_uuid': arq.device_rp_uuid,
            'instance_uuid': arq.instance_uuid,
            'project_id': arq.project_id,
            'attach_handle_type': arq.attach_handle_type or '',
            'attach_handle_uuid': arq.attach_handle_uuid,
            'attach_handle_info': arq.attach_handle_info,
            **pages.stamps(arq),
            'links': [request.link('v2', self.path, arq.uuid)],
        }


def _step(step: objects.Transition) -> dict[str, Any]:
    return {
        'at': pages.moment(step.at),
        'event': step.event,
        'from_state': step.from_state,
        'to_state': step.to_state,
        'actor': step.actor,
        'request_id': step.request_id,
        'hostname': step.hostname,
        'instance_uuid': step.instance_uuid,
        'reason': step.reason,
        'seconds_in_state': step.seconds_in_state,
    }


def _refuse_unresolved(shown: list[dict[str, Any]]) -> None:
    """A client that waits for a server's requests wants all of them, or to ask again."""
    open_ones = [arq['uuid'] for arq in shown if arq['state'] not in arq_states.RESOLVED]
    if open_ones:
        raise errors.Locked(f'Not resolved yet: {", ".join(open_ones)}; ask again.')
