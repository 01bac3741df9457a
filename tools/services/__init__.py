# SPDX-License-Identifier: Apache-2.0
"""Private RabbitMQ, MariaDB, PostgreSQL, Keystone, Placement, Glance and Nova servers for tests
and benchmarks.

Each has its own directory, free ports on 127.0.0.1 and random credentials, so it never meets a
server that runs already, and each ends with its ``with`` block, or with the process that opened
it, however that one ends::

    with services.rabbitmq() as broker:
        connect(broker.url)
        broker.kill()     # as a power cut would
        broker.start()    # the same port, the same data

On the command line: ``python -m tools.services rabbitmq mariadb -- pytest tests/functional``.
"""

from tools.services.glance import Glance
from tools.services.keystone import Keystone
from tools.services.nova import Nova
from tools.services.packages import Missing
from tools.services.placement import Placement
from tools.services.server import Failed, Server
from tools.services.servers import MariaDB, PostgreSQL, RabbitMQ

__all__ = [
    'Failed',
    'Missing',
    'Server',
    'glance',
    'keystone',
    'mariadb',
    'nova',
    'placement',
    'postgresql',
    'rabbitmq',
]

rabbitmq = RabbitMQ
mariadb = MariaDB
postgresql = PostgreSQL
keystone = Keystone
glance = Glance
placement = Placement
nova = Nova
