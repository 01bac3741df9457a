# SPDX-License-Identifier: Apache-2.0
"""Receipts: rows that prove the commit of a transaction which leaves no other proof, and rows that
list what a request with an idempotency key has created."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg import errors
from cyborg.db.sqlalchemy import clock, engine, models

Receipt = models.Receipt
_ADD = sa.insert(models.table(Receipt))


@dataclass(frozen=True)
class Key:
    """Identifies a request and its content."""

    uuid: str
    digest: str


def add(
    session: orm.Session, key: Key | None = None, made: Sequence[str] | None = None
) -> engine.Proof:
    """Add a receipt; returns what builds the query that finds it after the commit.

    Raises DBDuplicateEntry if a receipt with the same key exists.
    """
    uuid = key.uuid if key else uuidutils.generate_uuid()
    values = {
        'uuid': uuid,
        'created_at': clock.now(),
        'digest': key.digest if key else None,
        'made': None if made is None else list(made),
    }
    session.execute(_ADD, values)
    return lambda: sa.select(Receipt.id).where(Receipt.uuid == uuid)


def made(session: orm.Session, key: Key) -> list[str] | None:
    """Returns the uuids of the objects that a request with this key has created; None if there was
    no such request."""
    row = session.execute(
        sa.select(Receipt.digest, Receipt.made).where(Receipt.uuid == key.uuid)
    ).one_or_none()
    if row is None:
        return None
    if row.digest != key.digest:
        raise errors.IdempotencyKeyReused
    return row.made or []


def prune(session: orm.Session, before: datetime.datetime, keys_before: datetime.datetime) -> None:
    """Delete old receipts, and those with keys that have expired."""
    session.execute(
        sa.delete(Receipt).where(
            sa.or_(
                sa.and_(Receipt.digest.is_(None), Receipt.created_at < before),
                Receipt.created_at < keys_before,
            )
        )
    )
