# SPDX-License-Identifier: Apache-2.0
"""Devices and their parts, as the conductor shows them to the API."""

from typing import Any

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import devices, quarantine, tasks
from cyborg.conductor.repeats import create_once
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import attributes, deployables
from cyborg.db.sqlalchemy import devices as devices_db
from cyborg.db.sqlalchemy import tasks as tasks_db


class Devices(Endpoint):
    @exposed
    def list_devices(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any]
    ) -> list[objects.Device]:
        with self.db.reader() as session:
            return devices_db.find(session, filters, page)

    @exposed
    def get_device(self, context: RequestContext, uuid: str) -> objects.Device:
        with self.db.reader() as session:
            return devices_db.get(session, uuid)

    @exposed
    def set_device_status(self, context: RequestContext, uuid: str, status: str) -> None:
        with self.unit_of_work(context, is_repeatable=True) as unit:
            devices.set_status(unit, uuid, status)

    @exposed
    def list_hand_backs(
        self,
        context: RequestContext,
        filters: dict[str, Any],
        page: dict[str, Any],
        device_uuid: str,
    ) -> list[objects.HandBack]:
        with self.db.reader() as session:
            return tasks_db.hand_backs(session, device_uuid, filters, page)

    @exposed
    def clean_handle(
        self, context: RequestContext, device_uuid: str, handle_uuid: str
    ) -> objects.HandBack:
        """Have a host clean a quarantined handle again."""
        with self.unit_of_work(context) as unit:
            task = quarantine.clean_again(unit, handle_uuid, device_uuid)
            return tasks_db.hand_back(unit.session, task)

    @exposed
    def release_handle(
        self, context: RequestContext, device_uuid: str, handle_uuid: str, reason: str
    ) -> objects.HandBack:
        """Release a quarantined handle without cleaning."""
        with self.unit_of_work(context) as unit:
            task = quarantine.release(unit, handle_uuid, reason, device_uuid)
            unit.session.flush()
            return tasks_db.hand_back(unit.session, task)

    @exposed
    def list_deployables(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any]
    ) -> list[objects.Deployable]:
        with self.db.reader() as session:
            return deployables.find(session, filters, page)

    @exposed
    def get_deployable(self, context: RequestContext, uuid: str) -> objects.Deployable:
        with self.db.reader() as session:
            return deployables.get(session, uuid)

    @exposed
    def program_deployable(
        self, context: RequestContext, uuid: str, image_uuid: str
    ) -> objects.Deployable:
        """Create a task that loads an image; the host gets it with its next plan."""
        with self.unit_of_work(context) as unit:
            tasks.program_for_operator(unit, uuid, image_uuid)
            unit.session.flush()
            return deployables.get(unit.session, uuid)

    @exposed
    def is_programmed(self, context: RequestContext, task_uuid: str) -> bool:
        """Called by the API if other images were loaded before it could read a result."""
        with self.db.reader() as session:
            return tasks.is_programmed(session, task_uuid)

    @exposed
    def list_attributes(
        self, context: RequestContext, filters: dict[str, Any], page: dict[str, Any], nested: bool
    ) -> list[objects.Attribute]:
        with self.db.reader() as session:
            return attributes.find(session, filters, page, nested)

    @exposed
    def get_attribute(self, context: RequestContext, uuid: str, nested: bool) -> objects.Attribute:
        with self.db.reader() as session:
            return attributes.get(session, uuid, nested)

    @exposed
    def create_attribute(
        self,
        context: RequestContext,
        deployable: str,
        key: str,
        value: str,
        parent_uuid: str | None,
    ) -> objects.Attribute:
        [made] = create_once(
            self,
            context,
            ['create_attribute', deployable, key, value, parent_uuid],
            lambda unit: [attributes.create(unit.session, deployable, key, value, parent_uuid)],
            lambda session, uuids: attributes.find(session, {'uuid': uuids}, {}),
        )
        return made

    @exposed
    def delete_attribute(self, context: RequestContext, uuid: str) -> None:
        with self.unit_of_work(context) as unit:
            attributes.delete(unit.session, uuid)
