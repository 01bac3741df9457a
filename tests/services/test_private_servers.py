# SPDX-License-Identifier: Apache-2.0
"""The real RabbitMQ, MariaDB and PostgreSQL under our harness; `make test-services` runs these."""

import kombu
import pytest
import sqlalchemy as sa

from tools import services


@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_a_database_server_keeps_what_it_confirmed_when_it_is_killed(kind):
    with kind() as server:
        engine = sa.create_engine(server.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.execute(sa.text('CREATE TABLE fact (name VARCHAR(20))'))
            connection.execute(sa.text("INSERT INTO fact VALUES ('kept')"))
        server.kill()
        with pytest.raises(sa.exc.OperationalError):
            engine.connect()
        server.start()
        with engine.connect() as connection:
            assert connection.scalar(sa.text('SELECT name FROM fact')) == 'kept'
    assert not server.directory.exists()


@pytest.mark.parametrize('kind', [services.mariadb, services.postgresql])
def test_the_user_of_a_database_server_may_create_databases(kind):
    with kind() as server:
        engine = sa.create_engine(server.url, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT')
        with engine.connect() as connection:
            connection.execute(sa.text('CREATE DATABASE another'))
        other = sa.create_engine(
            sa.make_url(server.url).set(database='another'), poolclass=sa.NullPool
        )
        other.connect().close()


@pytest.mark.parametrize('end', ['kill', 'stop'])
def test_a_broker_keeps_what_it_confirmed_when_it_ends(end):
    with services.rabbitmq() as server:
        url = server.url.replace('rabbit://', 'amqp://') + '/'
        confirmed = kombu.Connection(url, transport_options={'confirm_publish': True})
        with confirmed, confirmed.SimpleQueue('facts') as queue:
            queue.put({'fact': 'kept'})
        getattr(server, end)()
        with pytest.raises(OSError):
            kombu.Connection(url, connect_timeout=5).connect()
        server.start()
        with kombu.Connection(url) as connection, connection.SimpleQueue('facts') as queue:
            assert queue.get(timeout=120).payload == {'fact': 'kept'}
