# SPDX-License-Identifier: Apache-2.0
"""The number of threads of a conductor."""

import pytest

from cyborg.conductor import service


@pytest.mark.parametrize(
    ('connections', 'threads'),
    [
        (20, 12),
        (100, 92),
        # what kolla-ansible writes
        (1, 4),
        # what oslo.db has by default
        (5, 4),
    ],
)
def test_messages_do_not_wait_for_one_another_where_few_connections_are_kept(connections, threads):
    assert service.message_threads(connections) == threads
