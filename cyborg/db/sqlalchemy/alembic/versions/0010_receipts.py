# SPDX-License-Identifier: Apache-2.0
"""Transactions leave a receipt"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0010'
down_revision = '0009'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')


def upgrade() -> None:
    op.create_table(
        'receipts',
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('created_at', MOMENT, nullable=False),
        sa.Column('updated_at', MOMENT),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_receipts'),
        sa.UniqueConstraint('uuid', name='uq_receipts_uuid'),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
    op.create_index('ix_receipts_created_at', 'receipts', ['created_at'])
