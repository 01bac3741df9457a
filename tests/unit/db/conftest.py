# SPDX-License-Identifier: Apache-2.0
"""One database after the other."""

import pytest

from cyborg.db.sqlalchemy import engine
from tests.fixtures.databases import AT_HAND, URLS, empty


@pytest.fixture(params=AT_HAND)
def database(request, tmp_path):
    """Without tables, on each kind of server at hand."""
    made = engine.Database(URLS[request.param] or f'sqlite:///{tmp_path}/cyborg.db')
    empty(made)
    yield made
    empty(made)
    made.close()
