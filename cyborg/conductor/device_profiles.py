# SPDX-License-Identifier: Apache-2.0
"""Device profiles, as the conductor serves them."""

from typing import Any

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine.changes import of_profile
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.conductor.repeats import create_once
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import device_profiles


class DeviceProfiles(Endpoint):
    @exposed
    def list_device_profiles(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any]
    ) -> list[objects.DeviceProfile]:
        with self.db.reader() as session:
            return device_profiles.find(session, self.audience(context), filters, page)

    @exposed
    def get_device_profile(self, context: RequestContext, ref: str) -> objects.DeviceProfile:
        with self.db.reader() as session:
            return device_profiles.get(session, self.audience(context), ref)

    @exposed
    def create_device_profiles(
        self, context: RequestContext, profiles: list[objects.DeviceProfile]
    ) -> list[objects.DeviceProfile]:
        content = [
            {name: getattr(each, name) for name in each.fields if name in each} for each in profiles
        ]
        return create_once(
            self,
            context,
            ['create_device_profiles', content],
            lambda unit: self._create(unit, profiles),
            lambda session, uuids: device_profiles.find(
                session, self.audience(context), {'uuid': uuids}, {}
            ),
        )

    @staticmethod
    def _create(
        unit: UnitOfWork, profiles: list[objects.DeviceProfile]
    ) -> list[objects.DeviceProfile]:
        made = device_profiles.create(unit.session, profiles)
        for profile in made:
            unit.note(of_profile(profile, 'created'))
        return made

    @exposed
    def update_device_profile(
        self, context: RequestContext, ref: str, changes: dict[str, Any]
    ) -> objects.DeviceProfile:
        with self.unit_of_work(context) as unit:
            updated = device_profiles.update(unit.session, self.audience(context), ref, changes)
            unit.note(of_profile(updated, 'updated', sorted(changes)))
            return updated

    @exposed
    def delete_device_profiles(self, context: RequestContext, refs: list[str]) -> None:
        """Delete all of them or none. A repeated call does nothing if the first one has deleted
        them: its receipt says so, and lists nothing."""

        def delete(unit: UnitOfWork) -> list[objects.DeviceProfile]:
            for profile in device_profiles.delete(unit.session, self.audience(context), refs):
                unit.note(of_profile(profile, 'deleted'))
            return []

        create_once(
            self, context, ['delete_device_profiles', refs], delete, lambda session, uuids: []
        )
