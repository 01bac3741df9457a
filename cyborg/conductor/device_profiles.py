# SPDX-License-Identifier: Apache-2.0
"""Device profiles, as the conductor serves them."""

from typing import Any

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import device_profiles


class DeviceProfiles(Endpoint):

    @exposed
    def list_device_profiles(self, context: RequestContext, filters: dict[str, Any],
                             page: dict[str, Any]) -> list[objects.DeviceProfile]:
        with self.db.reader() as session:
            return device_profiles.find(session, self.audience(context), filters, page)

    @exposed
    def get_device_profile(self, context: RequestContext, ref: str) -> objects.DeviceProfile:
        with self.db.reader() as session:
            return device_profiles.get(session, self.audience(context), ref)

    @exposed
    def create_device_profiles(
            self, context: RequestContext,
            profiles: list[objects.DeviceProfile]) -> list[objects.DeviceProfile]:
        with self.unit_of_work(context) as unit:
            return device_profiles.create(unit.session, profiles)

    @exposed
    def update_device_profile(self, context: RequestContext, ref: str,
                              changes: dict[str, Any]) -> objects.DeviceProfile:
        with self.unit_of_work(context) as unit:
            return device_profiles.update(unit.session, self.audience(context), ref, changes)

    @exposed
    def delete_device_profiles(self, context: RequestContext, refs: list[str]) -> None:
        with self.unit_of_work(context) as unit:
            device_profiles.delete(unit.session, self.audience(context), refs)
