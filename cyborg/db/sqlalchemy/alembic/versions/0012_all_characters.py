# SPDX-License-Identifier: Apache-2.0
"""MySQL and MariaDB: tables take all characters, whatever the default of their database is

Each column is changed by itself: CONVERT TO CHARACTER SET would make larger types of TEXT and
MEDIUMTEXT. Foreign keys are numbers, and text has no default, so nothing else is to be kept.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = '0012'
down_revision = '0011'

ALL = 'CHARACTER SET utf8mb4 COLLATE utf8mb4_bin'
TABLES = (
    'agents',
    'alembic_version',
    'arq_transitions',
    'attach_handles',
    'attributes',
    'control_path_ids',
    'deployables',
    'device_profile_projects',
    'device_profiles',
    'devices',
    'divided_cards',
    'ext_arqs',
    'nova_events',
    'receipts',
    'rounds',
)


def narrow_columns(connection: sa.Connection, table: str) -> list[Any]:
    return list(
        connection.execute(
            sa.text(
                'SELECT column_name, column_type, is_nullable FROM information_schema.columns'
                ' WHERE table_schema = DATABASE() AND table_name = :table'
                " AND collation_name != 'utf8mb4_bin' ORDER BY ordinal_position"
            ),
            {'table': table},
        )
    )


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != 'mysql':
        return
    for table in TABLES:
        changes = [
            f'MODIFY `{name}` {kind} {ALL} {"NULL" if null == "YES" else "NOT NULL"}'
            for name, kind, null in narrow_columns(connection, table)
        ]
        if changes:
            op.execute(f'ALTER TABLE {table} DEFAULT {ALL}, {", ".join(changes)}')
