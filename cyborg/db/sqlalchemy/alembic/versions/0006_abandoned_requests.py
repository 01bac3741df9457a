# SPDX-License-Identifier: Apache-2.0
"""Requests that nobody binds are found by an index"""

from alembic import op

revision = '0006'
down_revision = '0005'


def upgrade() -> None:
    op.create_index('ix_ext_arqs_state_created_at', 'ext_arqs', ['state', 'created_at'])
