# SPDX-License-Identifier: Apache-2.0
"""Devices and their parts, as the conductor shows them to the API."""

from typing import Any

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import tasks
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import attributes, deployables, devices
from cyborg.db.sqlalchemy import tasks as tasks_db


class Devices(Endpoint):

    @exposed
    def list_devices(self, context: RequestContext, filters: dict[str, Any],
                     page: dict[str, Any]) -> list[objects.Device]:
        with self.db.reader() as session:
            return devices.find(session, filters, page)

    @exposed
    def get_device(self, context: RequestContext, uuid: str) -> objects.Device:
        with self.db.reader() as session:
            return devices.get(session, uuid)

    @exposed
    def set_device_status(self, context: RequestContext, uuid: str, status: str) -> None:
        with self.unit_of_work(context, is_repeatable=True) as unit:
            unit.hosts_to_wake.add(devices.set_status(unit.session, uuid, status))

    @exposed
    def clean_handle(self, context: RequestContext, uuid: str) -> None:
        """Have a host try once more to clean a handle that is quarantined."""
        with self.unit_of_work(context) as unit:
            tasks.clean_again(unit, uuid)

    @exposed
    def release_handle(self, context: RequestContext, uuid: str) -> None:
        """Give a handle out again that is quarantined, as it is."""
        with self.unit_of_work(context) as unit:
            tasks.release_from_quarantine(unit, uuid)

    @exposed
    def list_hand_backs(self, context: RequestContext, filters: dict[str, Any],
                        page: dict[str, Any]) -> list[objects.HandBack]:
        with self.db.reader() as session:
            return tasks_db.hand_backs(session, filters, page)

    @exposed
    def list_deployables(self, context: RequestContext, filters: dict[str, Any],
                         page: dict[str, Any]) -> list[objects.Deployable]:
        with self.db.reader() as session:
            return deployables.find(session, filters, page)

    @exposed
    def get_deployable(self, context: RequestContext, uuid: str) -> objects.Deployable:
        with self.db.reader() as session:
            return deployables.get(session, uuid)

    @exposed
    def program_deployable(self, context: RequestContext, uuid: str,
                           image_uuid: str) -> objects.Deployable:
        """Note what is to be loaded into it; its host finds that in its next plan."""
        with self.unit_of_work(context) as unit:
            tasks.program_for_operator(unit, uuid, image_uuid)
            unit.session.flush()
            return deployables.get(unit.session, uuid)

    @exposed
    def list_attributes(self, context: RequestContext, filters: dict[str, Any],
                        page: dict[str, Any], nested: bool) -> list[objects.Attribute]:
        with self.db.reader() as session:
            return attributes.find(session, filters, page, nested)

    @exposed
    def get_attribute(self, context: RequestContext, uuid: str,
                      nested: bool) -> objects.Attribute:
        with self.db.reader() as session:
            return attributes.get(session, uuid, nested)

    @exposed
    def create_attribute(self, context: RequestContext, deployable: str, key: str, value: str,
                         parent_uuid: str | None) -> objects.Attribute:
        with self.unit_of_work(context) as unit:
            return attributes.create(unit.session, deployable, key, value, parent_uuid)

    @exposed
    def delete_attribute(self, context: RequestContext, uuid: str) -> None:
        with self.unit_of_work(context) as unit:
            attributes.delete(unit.session, uuid)
