# SPDX-License-Identifier: Apache-2.0
"""/v2/device_profiles"""

from http import HTTPStatus
from typing import Any

from cyborg import errors
from cyborg.api.controllers import base
from cyborg.api.expose import action, expose, policy, since
from cyborg.api.request import Request
from cyborg.api.types import device_profiles as profiles
from cyborg.api.types import documents, rendering
from cyborg.api.types.availability import Availability, AvailabilityQuery, by_host

#: callers that may list devices also see hosts
SEES_HOSTS = 'cyborg:device:get_all'
ONE = documents.wrapped(device_profile=profiles.DeviceProfile)


class DeviceProfiles(base.Collection):
    path = key = 'device_profiles'
    item = profiles.DeviceProfile

    @expose(documents.page(key, item), query=profiles.DeviceProfileQuery)
    @policy('cyborg:device_profile:get_all')
    def get_all(self, request: Request, query: profiles.DeviceProfileQuery) -> dict[str, Any]:
        """List profiles, or those of some names."""
        filters = query.filters()
        if 'name' in filters:
            filters['name'] = [
                name for name in profiles.parts(filters['name']) if profiles.is_name(name)
            ]
            if not filters['name']:
                return {self.key: []}
        return self.page(request, query, self.conductor.list_device_profiles, filters)

    @expose(ONE)
    @policy('cyborg:device_profile:get_one')
    def get_one(self, request: Request, ref: str) -> dict[str, Any]:
        """Show one, by uuid or (since 2.2) by name."""
        if not documents.UUID.matches(ref):
            request.needs((2, 2), 'Showing a device profile by its name')
        found = self.conductor.get_device_profile(request.context, profiles.ref(ref))
        return {'device_profile': self.as_document(found, request)}

    @expose(Availability, query=AvailabilityQuery, fails=(HTTPStatus.UNPROCESSABLE_ENTITY,))
    @action('GET', '{ref}/availability')
    @policy('cyborg:device_profile:get_availability')
    @since(2, 10)
    def availability(self, request: Request, ref: str, query: AvailabilityQuery) -> dict[str, Any]:
        """Show how often one fits now, and what is in the way. Those who may list devices also
        see that by host and group."""
        sees_hosts = request.allows(SEES_HOSTS)
        hostname = query.given().get('hostname')
        if hostname is not None and not sees_hosts:
            raise errors.PolicyForbids(rule=SEES_HOSTS)
        found = self.conductor.get_availability(
            request.context, profiles.ref(ref), hostname=hostname, with_hosts=sees_hosts
        )
        shown = rendering.render(found, Availability, request, *['hosts'] * sees_hosts)
        if sees_hosts:
            shown['hosts'] = by_host(shown['hosts'])
        return shown

    @expose(
        documents.AnyOf(item, documents.wrapped(device_profiles=[item])),
        body=profiles.NEW_PROFILES,
        status=HTTPStatus.CREATED,
        fails=(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    @policy('cyborg:device_profile:create')
    def post(self, request: Request, body: list[profiles.NewProfile]) -> dict[str, Any]:
        """Create profiles, all or none. The answer to a list of one is the profile itself."""
        wanted = [each.profile(self.conf.api.extra_accel_keys) for each in body]
        made = self.conductor.create_device_profiles(request.context, wanted)
        shown = [self.as_document(profile, request) for profile in made]
        return shown[0] if len(shown) == 1 else {self.key: shown}

    @expose(
        ONE,
        body=profiles.ProfileChange,
        fails=(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    @policy('cyborg:device_profile:update')
    @since(*profiles.UPDATE_SINCE)
    def patch(self, request: Request, ref: str, body: profiles.ProfileChange) -> dict[str, Any]:
        """Change the fields that the body names. Existing requests of the profile do not change."""
        ref = profiles.ref(ref)
        changes = body.checked(ref, self.conf.api.extra_accel_keys)
        changed = self.conductor.update_device_profile(request.context, ref, changes)
        return {'device_profile': self.as_document(changed, request)}

    @expose(status=HTTPStatus.NO_CONTENT, fails=(HTTPStatus.CONFLICT,))
    @policy('cyborg:device_profile:delete')
    def delete(self, request: Request, ref: str) -> None:
        """Delete those of a comma list, all or none."""
        self.conductor.delete_device_profiles(request.context, profiles.refs(ref))

    @expose(
        query=profiles.DeleteQuery,
        status=HTTPStatus.NO_CONTENT,
        fails=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )
    @policy('cyborg:device_profile:delete')
    def delete_all(self, request: Request, query: profiles.DeleteQuery) -> None:
        """The same, with the list in the query."""
        given = query.given()
        if len(given) != 1:
            raise errors.BadRequest('Name the device profiles, in value= or in name=.')
        [refs] = given.values()
        self.conductor.delete_device_profiles(request.context, profiles.refs(refs))
