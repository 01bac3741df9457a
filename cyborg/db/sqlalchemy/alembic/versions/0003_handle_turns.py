# SPDX-License-Identifier: Apache-2.0
"""Attach handles count their holders"""

import sqlalchemy as sa
from alembic import op

revision = '0003'
down_revision = '0002'


def upgrade() -> None:
    op.add_column(
        'attach_handles', sa.Column('turn', sa.BigInteger(), nullable=False, server_default='0')
    )
