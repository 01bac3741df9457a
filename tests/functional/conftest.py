# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several modules share, because they take long to start."""

import pytest

from tests.fixtures.identity import Identity
from tools import services


@pytest.fixture(scope='session')
def identity():
    """A real Keystone with people of every role."""
    with services.keystone() as keystone:
        yield Identity(keystone)


@pytest.fixture(scope='session')
def glance(identity):
    """A real Glance that asks it, in its catalog."""
    with services.glance(identity.url, 'glance', identity.password, 'services') as glance:
        identity.register(glance.url, 'image')
        yield glance
