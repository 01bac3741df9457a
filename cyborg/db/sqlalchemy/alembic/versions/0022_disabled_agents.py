# SPDX-License-Identifier: Apache-2.0
"""Operators disable agents, with a reason"""

import sqlalchemy as sa
from alembic import op

revision = '0022'
down_revision = '0021'
phase = 'expand'


def upgrade() -> None:
    op.add_column('agents', sa.Column('disabled_reason', sa.Text()))
