# SPDX-License-Identifier: Apache-2.0
"""A database in a file, with all tables, and a host that reports to it."""

import pytest

from cyborg.db.sqlalchemy import engine, migration
from tests.fixtures.reporting_host import Host


@pytest.fixture
def db(tmp_path):
    made = engine.Database(f'sqlite:///{tmp_path}/cyborg.db')
    migration.create_schema(made)
    yield made
    made.close()


@pytest.fixture
def host(db):
    """A host whose reports the engine takes, and whose handles requests take."""
    return Host(db)
