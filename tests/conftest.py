# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: above all ``cloud``, which is the all-in-one mode."""

import pytest
from futurist import _thread

from tests.fixtures.cloud import Cloud

# Idle threads of a pool that was shut down look up once a second; tests end sooner.
_thread.ThreadWorker.MAX_IDLE_FOR = 0.05


@pytest.fixture
def cloud(tmp_path):
    """A running Cyborg without hosts; tests add those they need."""
    made = Cloud(tmp_path)
    made.start()
    yield made
    made.stop()
