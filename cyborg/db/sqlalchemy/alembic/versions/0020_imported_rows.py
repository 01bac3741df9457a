# SPDX-License-Identifier: Apache-2.0
"""What was imported from the database of another service"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0020'
down_revision = '0019'
phase = 'expand'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')


def upgrade() -> None:
    for table in ('devices', 'deployables'):
        op.add_column(
            table, sa.Column('is_imported', sa.Boolean(), nullable=False, server_default=sa.false())
        )
    op.create_table(
        'imported_rows',
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('created_at', MOMENT, nullable=False),
        sa.Column('updated_at', MOMENT),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('hostname', sa.String(255)),
        sa.Column('state', sa.String(32)),
        sa.PrimaryKeyConstraint('id', name='pk_imported_rows'),
        sa.UniqueConstraint('kind', 'uuid', name='uq_imported_rows_kind_uuid'),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
    op.create_index('ix_imported_rows_hostname_kind', 'imported_rows', ['hostname', 'kind'])
