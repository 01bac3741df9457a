# SPDX-License-Identifier: Apache-2.0
"""Deployables keep what their hardware told of their content"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0007'
down_revision = '0006'

DOCUMENT = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    op.add_column('deployables', sa.Column('bitstream_content', DOCUMENT, nullable=True))
