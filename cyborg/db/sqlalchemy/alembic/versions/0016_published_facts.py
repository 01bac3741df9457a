# SPDX-License-Identifier: Apache-2.0
"""Resource class, traits and reserved count become columns of deployables

Before, they were read from the attributes that show them.
"""

import json
import re
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0016'
down_revision = '0015'
phase = 'expand'

JSON = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade() -> None:
    op.add_column('deployables', sa.Column('resource_class', sa.String(255)))
    op.add_column('deployables', sa.Column('traits', JSON))
    op.add_column(
        'deployables', sa.Column('reserved', sa.Integer(), nullable=False, server_default='0')
    )
    op.create_index('ix_deployables_resource_class', 'deployables', ['resource_class'])
    _copy()


def _copy() -> None:
    """Copy the values from the attributes of drivers, which stay."""
    parts = sa.table('deployables', *map(sa.column, ('id', 'resource_class', 'traits', 'reserved')))
    attributes = sa.table(
        'attributes',
        *map(sa.column, ('id', 'deployable_id', 'parent_attribute_id', 'key', 'value', 'is_users')),
    )
    key = attributes.c.key
    connection = op.get_bind()
    found: dict[int, dict[str, Any]] = {}
    for row in connection.execute(
        sa.select(attributes.c.deployable_id, key, attributes.c.value)
        .where(
            attributes.c.is_users == sa.false(),
            attributes.c.parent_attribute_id.is_(None),
            sa.or_(key.in_(('rc', 'reserved')), key.like('trait%')),
        )
        .order_by(attributes.c.id)
    ):
        facts = found.setdefault(
            row.deployable_id, {'resource_class': None, 'traits': [], 'reserved': 0}
        )
        if row.key == 'rc':
            facts['resource_class'] = row.value
        elif row.key == 'reserved' and row.value.isdecimal():
            facts['reserved'] = int(row.value)
        elif re.fullmatch(r'trait\d+', row.key):
            facts['traits'].append(row.value)
    if found:
        connection.execute(
            sa.update(parts)
            .where(parts.c.id == sa.bindparam('part'))
            .values(
                resource_class=sa.bindparam('class'),
                traits=sa.bindparam('names'),
                reserved=sa.bindparam('count'),
            ),
            [
                {
                    'part': part,
                    'class': facts['resource_class'],
                    'names': json.dumps(facts['traits']),
                    'count': facts['reserved'],
                }
                for part, facts in found.items()
            ],
        )
