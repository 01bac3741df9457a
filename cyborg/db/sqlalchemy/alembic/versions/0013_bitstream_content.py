# SPDX-License-Identifier: Apache-2.0
"""Deployables keep what their hardware told of their content"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0013'
down_revision = '0008'

DOCUMENT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    op.add_column('deployables', sa.Column('bitstream_content', DOCUMENT, nullable=True))
