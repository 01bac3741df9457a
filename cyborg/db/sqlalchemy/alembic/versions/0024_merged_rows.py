# SPDX-License-Identifier: Apache-2.0
"""The rows of ours with which imported rows were merged"""

import sqlalchemy as sa
from alembic import op

revision = '0024'
down_revision = '0023'
phase = 'expand'


def upgrade() -> None:
    op.add_column('imported_rows', sa.Column('merged_into', sa.String(36)))
