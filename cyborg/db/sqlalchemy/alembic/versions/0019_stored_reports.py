# SPDX-License-Identifier: Apache-2.0
"""Which reports conductors of an earlier release have stored"""

import sqlalchemy as sa
from alembic import op

revision = '0019'
down_revision = '0018'
phase = 'expand'


def upgrade() -> None:
    op.add_column('agents', sa.Column('stored_sequence', sa.BigInteger()))
