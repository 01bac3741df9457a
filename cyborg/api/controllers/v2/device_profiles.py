# SPDX-License-Identifier: Apache-2.0
"""/v2/device_profiles"""

from http import HTTPStatus
from typing import Any

from cyborg import errors, objects
from cyborg.api import pages
from cyborg.api.expose import expose
from cyborg.api.requests import Request
from cyborg.api.schemas import checks, shapes
from cyborg.api.schemas import device_profiles as schemas

ONE = shapes.wrapped(device_profile=shapes.ref('DeviceProfile'))


class DeviceProfiles(pages.Collection):
    path = key = 'device_profiles'
    name, shape = 'DeviceProfile', schemas.SHOWN

    @expose('GET', rule='cyborg:device_profile:get_all', query=schemas.LIST,
            shown=shapes.page(key, name))
    def get_all(self, request: Request) -> dict[str, Any]:
        """List profiles, or those of some names."""
        filters = pages.filters(request)
        if 'enabled' in filters:
            filters['is_enabled'] = filters.pop('enabled')
        if 'name' in filters:
            filters['name'] = [name for name in schemas.parts(filters['name'])
                               if schemas.is_name(name)]
            if not filters['name']:
                return {self.key: []}
        return self.page(request, self.conductor.list_device_profiles, filters)

    @expose('GET', '{ref}', rule='cyborg:device_profile:get_one', shown=ONE)
    def get_one(self, request: Request, ref: str) -> dict[str, Any]:
        """Show one, by uuid or (since 2.2) by name."""
        if not checks.is_uuid(ref):
            request.needs((2, 2), 'Showing a device profile by its name')
        found = self.conductor.get_device_profile(request.context, schemas.ref(ref))
        return {'device_profile': self.show(found, request)}

    @expose('POST', rule='cyborg:device_profile:create', body=schemas.CREATE,
            shown={'anyOf': [shapes.ref(name), shapes.items(key, name)]},
            status=HTTPStatus.CREATED, fails=(HTTPStatus.CONFLICT,
                                              HTTPStatus.UNPROCESSABLE_ENTITY))
    def post(self, request: Request) -> dict[str, Any]:
        """Create profiles, all or none. A list of one is answered with that one, bare."""
        wanted = [schemas.profile(document, self.conf.api.extra_accel_keys)
                  for document in request.document]
        made = self.conductor.create_device_profiles(request.context, wanted)
        shown = [self.show(profile, request) for profile in made]
        return shown[0] if len(shown) == 1 else {self.key: shown}

    @expose('PATCH', '{ref}', rule='cyborg:device_profile:update', body=schemas.UPDATE,
            shown=ONE, since=schemas.UPDATE_SINCE,
            fails=(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY))
    def patch(self, request: Request, ref: str) -> dict[str, Any]:
        """Change what the body names. Requests that were made with a profile stay as they are."""
        ref = schemas.ref(ref)
        changes = schemas.checked(ref, request.document, self.conf.api.extra_accel_keys)
        changed = self.conductor.update_device_profile(request.context, ref, changes)
        return {'device_profile': self.show(changed, request)}

    @expose('DELETE', '{ref}', rule='cyborg:device_profile:delete',
            status=HTTPStatus.NO_CONTENT, fails=(HTTPStatus.CONFLICT,))
    def delete(self, request: Request, ref: str) -> None:
        """Delete those of a comma list, all or none."""
        self.conductor.delete_device_profiles(request.context, schemas.refs(ref))

    @expose('DELETE', rule='cyborg:device_profile:delete', query=schemas.DELETE,
            status=HTTPStatus.NO_CONTENT, fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT))
    def delete_all(self, request: Request) -> None:
        """The same, with the list in the query."""
        if len(request.query) != 1:
            raise errors.BadRequest('Say which device profiles, in value= or in name=.')
        [refs] = request.query.values()
        self.conductor.delete_device_profiles(request.context, schemas.refs(refs))

    def whole(self, profile: objects.DeviceProfile, request: Request) -> dict[str, Any]:
        return {
            'uuid': profile.uuid,
            'name': profile.name,
            'description': profile.description,
            'groups': profile.groups,
            'enabled': profile.is_enabled,
            'projects': profile.project_ids,
            **pages.stamps(profile),
            'links': [request.link('v2', self.path, profile.uuid)],
        }
