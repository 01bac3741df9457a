# SPDX-License-Identifier: Apache-2.0
"""Device profiles can be disabled, and be for chosen projects only"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0002'
down_revision = '0001'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
TABLE = 'device_profile_projects'


def upgrade() -> None:
    for name, present in (('is_enabled', sa.true()), ('is_private', sa.false())):
        op.add_column(
            'device_profiles', sa.Column(name, sa.Boolean(), nullable=False, server_default=present)
        )
    op.create_table(
        TABLE,
        sa.Column('id', sa.Integer(), nullable=False),
        sa.Column('created_at', MOMENT, nullable=False),
        sa.Column('updated_at', MOMENT, nullable=True),
        sa.Column('device_profile_id', sa.Integer(), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint('id', name=f'pk_{TABLE}'),
        sa.ForeignKeyConstraint(
            ['device_profile_id'],
            ['device_profiles.id'],
            ondelete='RESTRICT',
            name=f'fk_{TABLE}_device_profile_id',
        ),
        sa.UniqueConstraint(
            'device_profile_id', 'project_id', name=f'uq_{TABLE}_device_profile_id_project_id'
        ),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin',
    )
    op.create_index(f'ix_{TABLE}_project_id', TABLE, ['project_id'])
