# SPDX-License-Identifier: Apache-2.0
"""Databases and brokers of several servers, of which one after the other fails, configured as the
page about high availability says."""

import contextlib
import re
import threading
import time

import pytest
import sqlalchemy as sa
from oslo_db import exception

from cyborg import errors
from cyborg.cmd import startup
from cyborg.conductor.engine import arqs
from cyborg.conductor.engine.limits import UNLIMITED
from cyborg.conductor.engine.unit_of_work import transact
from cyborg.db.sqlalchemy import engine, migration, models
from cyborg.db.sqlalchemy.history import Cause
from tests.fixtures import pages
from tests.fixtures.cloud import eventually
from tests.fixtures.processes import PATIENCE, Deployment
from tools import services
from tools.services.clusters import ClusteredRabbitMQ, GaleraNode, HAProxy, Standby

pytestmark = pytest.mark.timeout(900)
PAGE = 'admin/high-availability.rst'
FPGA = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
THREADS = 4


class Writers:
    """Conductors' threads, each of which creates one request after the other."""

    def __init__(self, database):
        self._database, self._is_over = database, threading.Event()
        self.created, self.failures, self.others = [], [], []
        self._threads = [threading.Thread(target=self._write) for _ in range(THREADS)]

    def _write(self):
        @engine.retried
        def create():
            with transact(self._database, Cause('test')) as unit:
                return arqs.create(unit, [{'resources:FPGA': '1'}], 'project', None, UNLIMITED)

        while not self._is_over.is_set():
            try:
                self.created.extend(arq.uuid for arq in create())
            except (exception.DBConnectionError, errors.Unavailable) as error:
                # the client gets 503
                self.failures.append(error)
            except Exception as error:
                self.others.append(error)
                return

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *exc_info):
        self._is_over.set()
        for each in self._threads:
            each.join()

    def go_on(self):
        """Wait until more is created."""
        enough = len(self.created) + 10 * THREADS
        eventually(lambda: len(self.created) > enough or self.others, PATIENCE)
        assert self.others == []


def check_that_nothing_is_lost_or_doubled(database, writers):
    @engine.retried
    def read():
        with database.reader() as session:
            return (
                session.scalars(sa.select(models.ExtArq.uuid)).all(),
                session.scalar(sa.select(sa.func.count(models.ArqTransition.id))),
            )

    stored, steps = read()
    assert set(writers.created) <= set(stored) and len(writers.created) == len(set(writers.created))
    # of a call that failed nobody knows whether it was performed
    assert len(stored) - len(writers.created) <= len(writers.failures)
    assert steps == len(stored)


# -- Galera, by HAProxy ----------------------------------------------------------------------


@pytest.fixture
def nodes():
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(GaleraNode())
        found = [first, *(stack.enter_context(GaleraNode(first)) for _ in range(2))]
        for node in found:
            node.peers = [each for each in found if each is not node]
        with sa.create_engine(first.url, poolclass=sa.NullPool).begin() as connection:
            connection.execute(sa.text("CREATE USER 'haproxy'@'127.0.0.1'"))
        yield found


@pytest.fixture
def proxy(nodes):
    text = pages.block(PAGE, 'none', 'listen cyborg-database')
    made = HAProxy('')
    for number, port in enumerate([made.port, *(node.port for node in nodes)]):
        address = f'10.0.0.{10 + number}:3306'
        assert text.count(address) == 1
        text = text.replace(address, f'127.0.0.1:{port}')
    made._listen = text
    with made:
        yield made


def users(node):
    """How many connections of conductors a node has."""
    with sa.create_engine(node.url, poolclass=sa.NullPool).connect() as connection:
        return connection.scalar(
            sa.text(
                'SELECT COUNT(*) FROM information_schema.processlist '
                'WHERE db = :name AND id != CONNECTION_ID()'
            ),
            {'name': 'cyborg'},
        )


def is_synced(node):
    try:
        with sa.create_engine(node.url, poolclass=sa.NullPool).connect() as connection:
            state = connection.execute(
                sa.text("SHOW STATUS LIKE 'wsrep_local_state_comment'")
            ).one()
            return state[1] == 'Synced'
    except sa.exc.OperationalError:
        return False


@pytest.fixture
def options(tmp_path):
    """The options of the page, but for the URL."""
    text = pages.block(PAGE, 'ini', 'wsrep')
    assert 'mysql_wsrep_sync_wait = 1' in text
    path = tmp_path / 'cyborg.conf'
    path.write_text(re.sub('^connection = .*\n', '', text, flags=re.MULTILINE))
    startup.CONF.reset()
    yield startup.configure(['--config-file', str(path)], default_config_files=[])
    startup.CONF.reset()


def test_a_galera_cluster_has_one_writer_and_the_next_one_takes_over(nodes, proxy, options):
    url = sa.make_url(nodes[0].url).set(port=proxy.port)
    database = engine.Database(url)
    try:
        with database.reader() as session:
            assert session.scalar(sa.text('SELECT @@wsrep_sync_wait')) == 1
        migration.upgrade(database)
        with Writers(database) as writers:
            writers.go_on()
            assert [users(node) > 0 for node in nodes] == [True, False, False]
            # when the node of all conductors fails, another one takes over
            nodes[0].kill()
            writers.go_on()
            assert sorted(users(node) > 0 for node in nodes[1:]) == [False, True]
            # and when the first one is back, it does not become a second one
            nodes[0].start()
            eventually(lambda: is_synced(nodes[0]), PATIENCE)
            time.sleep(5)  # the proxy knows of it
            writers.go_on()
            late = engine.Database(url)  # of a conductor that starts now
            with late.reader() as session:
                session.execute(sa.text('SELECT 1'))
                assert sorted(users(node) > 0 for node in nodes) == [False, False, True]
            late.close()
            # and when the second one fails, there is another one
            [busy] = [node for node in nodes if users(node)]
            busy.kill()
            writers.go_on()
        check_that_nothing_is_lost_or_doubled(database, writers)
    finally:
        database.close()


# -- PostgreSQL, by two hosts in the URL -----------------------------------------------------


def test_a_standby_that_was_promoted_is_found_by_the_second_host_of_the_url():
    with services.postgresql() as primary, Standby(primary) as standby:
        with sa.create_engine(
            primary.url, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT'
        ).connect() as connection:
            connection.execute(sa.text("ALTER SYSTEM SET synchronous_standby_names = '*'"))
            connection.execute(sa.text('SELECT pg_reload_conf()'))
        [url] = re.findall(
            '^connection = (postgresql.*db2.*)$', pages.block(PAGE, 'ini', 'db2'), re.MULTILINE
        )
        for old, new in {
            'PASS': primary.password,
            'db1:5432': f'127.0.0.1:{primary.port}',
            'db2:5432': f'127.0.0.1:{standby.port}',
        }.items():
            assert url.count(old) == 1
            url = url.replace(old, new)
        database = engine.Database(url)
        try:
            migration.upgrade(database)
            with Writers(database) as writers:
                writers.go_on()
                primary.kill()
                eventually(lambda: writers.failures, PATIENCE)  # nobody writes to a standby
                standby.promote()
                writers.go_on()
            check_that_nothing_is_lost_or_doubled(database, writers)
        finally:
            database.close()


# -- RabbitMQ, by all its brokers in the URL -------------------------------------------------


@pytest.fixture(scope='module')
def brokers():
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(ClusteredRabbitMQ())
        others = [stack.enter_context(ClusteredRabbitMQ(first)) for _ in range(2)]
        yield [first, *others]


@pytest.mark.parametrize('queues', ['classic', 'quorum'])
def test_services_go_on_with_another_broker_of_the_url(tmp_path, brokers, database, queues):
    # given services that know three brokers
    hosts = ','.join(re.match('rabbit://(.*)/', each.url)[1] for each in brokers)
    options = pages.block(PAGE, 'ini', 'quorum') if queues == 'quorum' else ''
    assert ('rabbit_quorum_queue = true' in options) is (queues == 'quorum')
    with Deployment(
        tmp_path, f'rabbit://{hosts}/', database.url, conductor=options, api=options
    ) as deployment:
        deployment.start()
        deployment.host(more=options)
        deployment.profile('one', FPGA)
        rp = deployment.rp()
        for broker in brokers[:2]:
            # when one of them fails
            broker.kill()
            back = models.now()
            try:
                # then calls, and reports of the agent, go over another one
                eventually(deployment.answers, PATIENCE)
                [arq] = deployment.request('one')
                assert deployment.bind(arq, rp=rp).status_code == 202
                eventually(lambda t=back: deployment.heartbeat('compute1') > t, PATIENCE)
                [event] = deployment.nova.wait_for(
                    lambda events, tag=arq['uuid']: any(each['tag'] == tag for each in events)
                )[-1:]
                assert event['tag'] == arq['uuid']
                assert deployment.unbind(arq).status_code == 202
            finally:
                broker.start()
        assert all(process.is_alive for process in deployment.processes)
