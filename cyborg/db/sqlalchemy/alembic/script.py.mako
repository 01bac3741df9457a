# SPDX-License-Identifier: Apache-2.0
"""${message}"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
phase = 'expand'


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
