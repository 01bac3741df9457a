# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests: above all ``cloud``, which is the all-in-one mode."""

import gc
import os
import uuid

import hypothesis
import pytest
from futurist import _thread

from tests.fixtures.cloud import Cloud, another_database

# Idle threads of a pool that was shut down look up once a second; tests end sooner.
_thread.ThreadWorker.MAX_IDLE_FOR = 0.05

# Neither a busy machine nor an example that nobody has seen before may fail a change that has
# nothing to do with it: `make fuzz` searches for new ones.
PATIENT = {
    'deadline': None,
    'database': None,
    'suppress_health_check': [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile('repeatable', derandomize=True, **PATIENT)
hypothesis.settings.register_profile('searching', max_examples=1000, **PATIENT)
hypothesis.settings.load_profile('repeatable')


def pytest_configure(config):
    """Have consumers stop at once, and give each of several workers a database of its own, since
    a cloud empties the one it gets."""
    # Loaded after cyborg, which chooses threads for these libraries.
    from oslo_messaging._drivers import impl_rabbit

    from cyborg import rpc

    # A consumer notices only between two polls that it is told to stop, and on RabbitMQ an idle
    # one polls less and less often, up to every five seconds. (Set after the driver is loaded,
    # which derives the limit of an option from the default.)
    impl_rabbit.amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MAX = rpc.IDLE_PAUSE = 0.05
    worker, url = (
        os.environ.get(name) for name in ('PYTEST_XDIST_WORKER', 'CYBORG_TEST_DATABASE_URL')
    )
    if worker and url:
        os.environ['CYBORG_TEST_DATABASE_URL'] = another_database(
            url, f'cyborg_{worker}_{uuid.uuid4().hex}'
        )


def pytest_collection_finish():
    """Have the garbage collector skip the modules and tests, which are there until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def cloud(tmp_path):
    """A running Cyborg without hosts; tests add those they need."""
    made = Cloud(tmp_path)
    made.start()
    yield made
    made.stop()
