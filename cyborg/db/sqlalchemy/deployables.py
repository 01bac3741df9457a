# SPDX-License-Identifier: Apache-2.0
"""Deployables in SQL."""

import json

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg import errors, objects
from cyborg.db.sqlalchemy import attributes, models, paging

Deployable = models.Deployable
PARENT, ROOT = orm.aliased(Deployable), orm.aliased(Deployable)
FILTERS = {'uuid': Deployable.uuid, 'name': Deployable.name, 'rp_uuid': Deployable.rp_uuid,
           'driver_name': Deployable.driver_name, 'device_id': Deployable.device_id,
           'device_uuid': models.Device.uuid, 'hostname': models.Device.hostname,
           'bitstream_id': Deployable.bitstream_id, 'parent_id': Deployable.parent_id,
           'parent_uuid': PARENT.uuid, 'root_id': Deployable.root_id, 'root_uuid': ROOT.uuid}
#: named as the fields of objects.Deployable
ALL = (sa.select(*(getattr(Deployable, name) for name in objects.Deployable.fields
                   if name in Deployable.__table__.columns),
                 models.Device.uuid.label('device_uuid'), PARENT.uuid.label('parent_uuid'),
                 PARENT.name.label('parent_name'), ROOT.uuid.label('root_uuid'))
       .join(models.Device, Deployable.device_id == models.Device.id)
       .outerjoin(PARENT, Deployable.parent_id == PARENT.id)
       .outerjoin(ROOT, Deployable.root_id == ROOT.id))


def find(session: orm.Session, filters: paging.Filters,
         page: paging.Page) -> list[objects.Deployable]:
    """Those that match, a page of them, with their attributes at the top, as far as they are
    shown, and without their handles."""
    query = paging.page_of(session, ALL, Deployable, FILTERS, filters, page)
    found = session.execute(query).all()
    facts = attributes.of_deployables(session, [row.id for row in found])
    return [
        objects.Deployable.of(
            row, resource_class=attributes.resource_class(facts[row.id]),
            attribute_list=json.dumps([{fact.key: fact.value} for fact in facts[row.id]]))
        for row in found]


def get(session: orm.Session, uuid: str) -> objects.Deployable:
    """One deployable, with its attributes."""
    found = find(session, {'uuid': uuid}, {})
    if not found:
        raise errors.DeployableNotFound(uuid=uuid)
    return found[0]


def providers_of(session: orm.Session, hostname: str) -> set[str]:
    """The uuids of a host's resource providers."""
    return set(session.scalars(sa.select(Deployable.rp_uuid).join(Deployable.device)
                               .where(models.Device.hostname == hostname)))
