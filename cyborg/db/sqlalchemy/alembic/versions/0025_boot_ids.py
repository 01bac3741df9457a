# SPDX-License-Identifier: Apache-2.0
"""The boot of its host in which the image of a deployable was last known to be there"""

import sqlalchemy as sa
from alembic import op

revision = '0025'
down_revision = '0024'
phase = 'expand'


def upgrade() -> None:
    op.add_column('deployables', sa.Column('boot_id', sa.String(64), nullable=True))
