# SPDX-License-Identifier: Apache-2.0
"""How alembic runs our migrations: on the connection that migration.py hands over."""

from typing import Any

from alembic import context

from cyborg.db.sqlalchemy import models, revisions


def is_ours(name: str | None, kind: str, parents: Any) -> bool:
    """Returns whether the models have this table: not the one that earlier releases read."""
    return (kind, name) != ('table', revisions.FLOOR_TABLE)


context.configure(
    connection=context.config.attributes['connection'],
    target_metadata=models.Base.metadata,
    render_as_batch=True,
    version_table=revisions.VERSION_TABLE,
    include_name=is_ours,
)
with context.begin_transaction():
    context.run_migrations()
