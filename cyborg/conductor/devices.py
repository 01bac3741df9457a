# SPDX-License-Identifier: Apache-2.0
"""Devices and their parts, as the conductor shows them to the API."""

from typing import Any

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import attributes, deployables, devices, programming


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
        with self.db.writer() as session:
            hostname = devices.set_status(session, uuid, status)
        self.tell_hosts(context, {}, [hostname])

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
        with self.change(context) as ledger:
            programming.start(ledger, uuid, image_uuid,
                              context.global_request_id or context.request_id)
            return deployables.get(ledger.session, uuid)

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
        with self.change(context) as ledger:
            return attributes.create(ledger.session, deployable, key, value, parent_uuid)

    @exposed
    def delete_attribute(self, context: RequestContext, uuid: str) -> None:
        with self.change(context) as ledger:
            attributes.delete(ledger.session, uuid)
