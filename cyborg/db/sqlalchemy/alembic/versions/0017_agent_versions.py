# SPDX-License-Identifier: Apache-2.0
"""The versions that agents report"""

import sqlalchemy as sa
from alembic import op

revision = '0017'
down_revision = '0016'
phase = 'expand'


def upgrade() -> None:
    op.add_column('agents', sa.Column('rpc_version', sa.String(16)))
    op.add_column('agents', sa.Column('cyborg_release', sa.String(64)))
