# SPDX-License-Identifier: Apache-2.0
"""What operators decided about handles that could not be cleaned"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0014'
down_revision = '0013'
phase = 'expand'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')


def upgrade() -> None:
    for name, kind in (
        ('decision', sa.String(16)),
        ('decided_by', sa.String(255)),
        ('decision_reason', sa.Text()),
        ('decided_at', MOMENT),
    ):
        op.add_column('tasks', sa.Column(name, kind))
