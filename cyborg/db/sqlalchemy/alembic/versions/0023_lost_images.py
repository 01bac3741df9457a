# SPDX-License-Identifier: Apache-2.0
"""Deployables that may have lost their image"""

import sqlalchemy as sa
from alembic import op

revision = '0023'
down_revision = '0022'
phase = 'expand'


def upgrade() -> None:
    op.add_column(
        'deployables',
        sa.Column('may_have_lost_image', sa.Boolean(), nullable=False, server_default=sa.false()),
    )
