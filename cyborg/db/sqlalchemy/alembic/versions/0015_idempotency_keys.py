# SPDX-License-Identifier: Apache-2.0
"""Receipts say what a request with an idempotency key has made"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0015'
down_revision = '0014'
phase = 'expand'

JSON = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    op.add_column('receipts', sa.Column('digest', sa.String(64)))
    op.add_column('receipts', sa.Column('made', JSON))
