# SPDX-License-Identifier: Apache-2.0
"""The requests of a server belong to the server's project

An administrator who evacuated a server became the owner of its requests. They go back to the
project that was the first to have requests of that server.
"""

import sqlalchemy as sa
from alembic import op

revision = '0008'
down_revision = '0007'

ARQS = sa.table('ext_arqs', sa.column('instance_uuid'), sa.column('project_id'))
STEPS = sa.table(
    'arq_transitions', sa.column('id'), sa.column('instance_uuid'), sa.column('project_id')
)


def upgrade() -> None:
    op.create_index('ix_arq_transitions_instance_uuid', 'arq_transitions', ['instance_uuid'])
    first = (
        sa.select(sa.func.min(STEPS.c.id))
        .where(STEPS.c.instance_uuid == ARQS.c.instance_uuid, STEPS.c.project_id.is_not(None))
        .correlate(ARQS)
        .scalar_subquery()
    )
    step = STEPS.alias('step')
    owner = sa.select(step.c.project_id).where(step.c.id == first).correlate(ARQS).scalar_subquery()
    op.execute(sa.update(ARQS).where(owner.is_not(None)).values(project_id=owner))
