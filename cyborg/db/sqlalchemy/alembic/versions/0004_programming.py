# SPDX-License-Identifier: Apache-2.0
"""Deployables can be programmed"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0004'
down_revision = '0003'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')


def upgrade() -> None:
    for name, kind, present in (
        ('is_programmable', sa.Boolean(), sa.false()),
        ('program_image', sa.String(36), None),
        ('program_turn', sa.BigInteger(), '0'),
        ('program_since', MOMENT, None),
        ('program_request_id', sa.String(64), None),
        ('program_error', sa.Text(), None),
    ):
        op.add_column(
            'deployables', sa.Column(name, kind, nullable=present is None, server_default=present)
        )
    op.create_index('ix_deployables_program_image', 'deployables', ['program_image'])
    op.add_column(
        'attach_handles',
        sa.Column('is_programming', sa.Boolean(), nullable=False, server_default=sa.false()),
    )
