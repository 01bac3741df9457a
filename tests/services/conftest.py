# SPDX-License-Identifier: Apache-2.0
"""One broker and one database server for the tests of a module; each deployment has its own
queues and its own database in them."""

import pytest

from tests.fixtures.processes import Deployment
from tools import services


@pytest.fixture(scope='module')
def broker():
    with services.rabbitmq() as server:
        yield server


@pytest.fixture(scope='module')
def database(request):
    """MariaDB, or what a test asks for."""
    with getattr(request, 'param', services.mariadb)() as server:
        yield server


@pytest.fixture
def deployment(request, tmp_path, broker, database):
    """Two conductors, the API, with the options that a test asks for, and Placement, running;
    tests add hosts."""
    with Deployment(
        tmp_path, broker.url, database.url, conductors=2, api=getattr(request, 'param', '')
    ) as made:
        made.start()
        yield made
