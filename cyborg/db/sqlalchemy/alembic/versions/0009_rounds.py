# SPDX-License-Identifier: Apache-2.0
"""Periodic work has leases, and what is to be programmed has an index"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0009'
down_revision = '0008'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
JSON = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    op.create_table(
        'rounds',
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('created_at', MOMENT, nullable=False),
        sa.Column('updated_at', MOMENT),
        sa.Column('name', sa.String(32), nullable=False),
        sa.Column('holder', sa.String(255), nullable=False),
        sa.Column('until', MOMENT, nullable=False),
        sa.Column('finished_at', MOMENT),
        sa.Column('figures', JSON),
        sa.PrimaryKeyConstraint('id', name='pk_rounds'),
        sa.UniqueConstraint('name', name='uq_rounds_name'),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
    op.create_index('ix_deployables_program_since', 'deployables', ['program_since'])
