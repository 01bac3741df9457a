# SPDX-License-Identifier: Apache-2.0
"""How alembic runs our migrations: on the connection that migration.py hands over."""

from alembic import context

from cyborg.db.sqlalchemy import models

context.configure(
    connection=context.config.attributes['connection'], target_metadata=models.Base.metadata,
    render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
