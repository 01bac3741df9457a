# SPDX-License-Identifier: Apache-2.0
"""Rows that prove that a transaction was committed, of those that leave no other trace."""

import datetime

import sqlalchemy as sa
from oslo_utils import uuidutils
from sqlalchemy import orm

from cyborg.db.sqlalchemy import models

Receipt = models.Receipt
_ADD = sa.insert(Receipt.__table__)


def add(session: orm.Session) -> sa.Select:
    """Leave a receipt; returns the query that finds it once the transaction is committed."""
    uuid = uuidutils.generate_uuid()
    session.execute(_ADD, {'uuid': uuid, 'created_at': models.now()})
    return sa.select(Receipt.id).where(Receipt.uuid == uuid)


def prune(session: orm.Session, before: datetime.datetime) -> None:
    """Forget those that nobody asks for any more."""
    session.execute(sa.delete(Receipt).where(Receipt.created_at < before))
