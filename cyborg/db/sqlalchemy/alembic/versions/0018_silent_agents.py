# SPDX-License-Identifier: Apache-2.0
"""What silent agents would have to prepare is reserved"""

import sqlalchemy as sa
from alembic import op

revision = '0018'
down_revision = '0017'
phase = 'expand'


def upgrade() -> None:
    op.add_column('agents', sa.Column('withdrawal', sa.String(16)))
