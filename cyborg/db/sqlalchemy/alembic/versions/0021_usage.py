# SPDX-License-Identifier: Apache-2.0
"""Steps of requests tell what the request asks for"""

import sqlalchemy as sa
from alembic import op

revision = '0021'
down_revision = '0020'
phase = 'expand'


def upgrade() -> None:
    op.add_column('ext_arqs', sa.Column('device_profile_name', sa.String(255)))
    for name in ('device_profile_name', 'resource_class'):
        op.add_column('arq_transitions', sa.Column(name, sa.String(255)))
    op.execute(
        'UPDATE ext_arqs SET device_profile_name = (SELECT name FROM device_profiles '
        'WHERE device_profiles.id = ext_arqs.device_profile_id)'
    )
