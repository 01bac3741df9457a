# SPDX-License-Identifier: Apache-2.0
"""Records, in SQL, of rows that were imported from the database of another service."""

import sqlalchemy as sa
from sqlalchemy import orm

from cyborg.db.sqlalchemy import models

Row = models.ImportedRow
PROVIDER = 'provider'


def are_on(session: orm.Session, hostname: str) -> bool:
    """Returns whether a host has rows that drivers have not reported, or that are held as they
    were imported."""
    device, part = models.Device, models.Deployable
    query = (
        sa.select(device.id)
        .outerjoin(part, sa.and_(part.device_id == device.id, part.is_imported))
        .where(device.hostname == hostname, sa.or_(device.is_imported, part.id.is_not(None)))
        .limit(1)
    )
    return session.scalar(query) is not None


def providers_of(session: orm.Session, hostname: str) -> list[str]:
    """Returns the uuids of the resource providers that were imported for a host."""
    return list(
        session.scalars(
            sa.select(Row.uuid)
            .where(Row.hostname == hostname, Row.kind == PROVIDER)
            .order_by(Row.id)
        )
    )


def known(session: orm.Session) -> dict[tuple[str, str], Row]:
    """Returns the records of all imported rows, by kind and uuid."""
    return {(row.kind, row.uuid): row for row in session.scalars(sa.select(Row))}
