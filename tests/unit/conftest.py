# SPDX-License-Identifier: Apache-2.0
"""A database in a file with all tables."""

import pytest

from cyborg.db.sqlalchemy import engine, migration


@pytest.fixture
def db(tmp_path):
    made = engine.Database(f'sqlite:///{tmp_path}/cyborg.db')
    migration.create_schema(made)
    yield made
    made.close()
