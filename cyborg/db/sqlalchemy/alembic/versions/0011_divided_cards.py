# SPDX-License-Identifier: Apache-2.0
"""Cards that left their host are remembered if they were given out by virtual functions"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0011'
down_revision = '0010'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')


def upgrade() -> None:
    op.create_table(
        'divided_cards',
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('created_at', MOMENT, nullable=False),
        sa.Column('updated_at', MOMENT),
        sa.Column('hostname', sa.String(255), nullable=False),
        sa.Column('key', sa.String(255), nullable=False),
        sa.Column('vendor', sa.String(255), nullable=False),
        sa.Column('model', sa.String(255)),
        sa.PrimaryKeyConstraint('id', name='pk_divided_cards'),
        sa.UniqueConstraint('hostname', 'key', name='uq_divided_cards_hostname_key'),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
