# SPDX-License-Identifier: Apache-2.0
"""Events that Nova refuses are given up some day"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0005'
down_revision = '0004'

MOMENT = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')


def upgrade() -> None:
    for name in ('refused_since', 'given_up_at'):
        op.add_column('nova_events', sa.Column(name, MOMENT, nullable=True))
