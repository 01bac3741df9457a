# SPDX-License-Identifier: Apache-2.0
"""Sessions: ``Database.reader`` and ``Database.writer``, each one transaction."""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import enginefacade, exc_filters
from sqlalchemy import dialects, orm

from cyborg import errors, tracing
from cyborg.db.sqlalchemy import clock

F = TypeVar('F', bound=Callable[..., Any])
#: for packages that use sessions and must not import SQLAlchemy
Session = orm.Session
Query = sa.Select
#: builds a query that finds a row if a transaction was committed; it is hardly ever needed, and
#: building it takes longer than some statements
Proof = Callable[[], Query[int]]
ConnectionLost = db_exc.DBConnectionError
Duplicate = db_exc.DBDuplicateEntry
#: failures that are independent of the data: the whole transaction is repeated
TRANSIENT = (db_exc.DBDeadlock, db_exc.DBConnectionError)

WRITES = 'cyborg_writes'
#: seconds of idleness after which a connection is tested before use
RESTED = 5.0


class Database:
    """The conductor's database, by URL; pools and retries are oslo.db's options."""

    def __init__(self, connection: str | sa.URL | None) -> None:
        if not connection:
            raise errors.ConfigError(why='There is no database to use: set [database] connection.')
        try:
            is_file = sa.make_url(connection).get_backend_name() == 'sqlite'
            self.engine = _embedded(connection) if is_file else _served(connection)
            with self.engine.connect() as made:
                asked = clock.local_now()
                clock.follow(made.scalars(sa.select(clock.database_now())).one(), asked)
        except (db_exc.DBError, sa.exc.SQLAlchemyError, ImportError) as error:
            why = str(error).splitlines()[0]
            raise errors.ConfigError(
                why=f'The database of [database] connection cannot be used: {why}'
            ) from error
        self._sessions = orm.sessionmaker(self.engine, expire_on_commit=False)
        # commands do not close their database; at the end of the process the system does
        self._finalizer = weakref.finalize(self, self.engine.dispose)
        self._finalizer.atexit = False

    @contextlib.contextmanager
    def reader(self) -> Iterator[orm.Session]:
        """A transaction that only reads."""
        with self._sessions.begin() as session:
            yield session

    @contextlib.contextmanager
    def writer(self) -> Iterator[orm.Session]:
        """A transaction that writes: all of it, or nothing."""
        with self._sessions.begin() as session:
            session.connection(execution_options={WRITES: True})
            yield session

    def trace(self, conf: cfg.ConfigOpts) -> None:
        """Have statements be spans of the requests that cause them, if the configuration says so.
        Results are never part of a span."""
        if tracing.is_enabled(conf) and conf.profiler.trace_sqlalchemy:
            from osprofiler import sqlalchemy as tracer

            tracer.add_tracing(sa, self.engine, 'db')

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
        self._finalizer.detach()  # it refers to the engine, whose listeners may refer to this


def _embedded(connection: str | sa.URL) -> sa.Engine:
    """Returns an engine for SQLite. Readers work beside a writer, writers wait for each other, and
    a crash loses nothing.

    oslo.db is not used here: it opens the file for each transaction, and when it closes the last
    connection SQLite copies the write-ahead log, which takes longer than the transaction.
    """
    engine = sa.create_engine(connection)
    exc_filters.register_engine(engine)

    @sa.event.listens_for(engine, 'connect')
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in ('journal_mode=WAL', 'busy_timeout=30000', 'foreign_keys=ON'):
            connection.execute(f'PRAGMA {pragma}')

    # A transaction that reads first and writes later can lose its snapshot, and then fails at
    # once, whatever the time-out. So a writer takes the write lock at its begin.
    @sa.event.listens_for(engine, 'begin')
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql('BEGIN IMMEDIATE' if writes else 'BEGIN')

    return engine


def _served(connection: str | sa.URL) -> sa.Engine:
    """Returns an engine for MariaDB or PostgreSQL."""
    dialects.plugins.register('cyborg', __name__, '_FewerTrips')
    facade = enginefacade.transaction_context()
    # thread_checkin is for eventlet, which we do not use
    facade.configure(
        connection=_with_all_characters(sa.make_url(connection)).update_query_pairs(
            [('plugin', 'cyborg')], append=True
        ),
        thread_checkin=False,
    )
    engine: sa.Engine = facade.writer.get_engine()
    _test_idle_connections(engine)
    if engine.dialect.name == 'mysql':
        _use_read_committed(engine)
        engine.dispose()  # closes the connection that oslo.db has opened before this was set
    return engine


def _with_all_characters(url: sa.URL) -> sa.URL:
    """Returns the URL with the charset utf8mb4: without it MySQL and MariaDB refuse characters of
    four bytes.

    oslo.db translates errors for the dialect mysql only, so MariaDB gets that name, too.
    """
    if url.get_backend_name() not in ('mysql', 'mariadb'):
        return url
    return url.set(drivername=url.drivername.replace('mariadb', 'mysql', 1)).update_query_dict(
        {'charset': 'utf8mb4'}
    )


class _FewerTrips(sa.engine.CreateEnginePlugin):
    """Saves two round trips of each transaction: the ping before it, and the rollback after it.
    Our transactions always end themselves, and those that fail because the server went away are
    repeated (``retried``)."""

    def update_url(self, url: sa.URL) -> sa.URL:
        return url  # it has no options of ours

    def handle_pool_kwargs(self, pool_cls: type[sa.Pool], pool_args: dict[str, Any]) -> None:
        pool_args.update(pre_ping=False, reset_on_return=None)


def _test_idle_connections(engine: sa.Engine) -> None:
    """Ping a connection that was idle for a while before it is used: the server may have been
    restarted, or a proxy may have closed it."""

    @sa.event.listens_for(engine, 'checkin')
    def rest(connection: Any, record: Any) -> None:
        record.info['rests_since'] = time.monotonic()

    @sa.event.listens_for(engine, 'checkout')
    def look(connection: Any, record: Any, proxy: Any) -> None:
        since = record.info.get('rests_since', float('inf'))
        if time.monotonic() - since > RESTED and not _is_alive(engine, connection):
            raise sa.exc.DisconnectionError


def _is_alive(engine: sa.Engine, connection: Any) -> bool:
    try:
        return engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error:
        return False


def _use_read_committed(engine: sa.Engine) -> None:
    """Use READ COMMITTED: after a statement has waited for a lock, the next one must see what the
    other transaction has committed.

    It is set for each connection. SQLAlchemy would reset an isolation level that is set for a
    transaction after its end, and a server that is gone by then would make a committed transaction
    fail.
    """

    @sa.event.listens_for(engine, 'connect')
    def configure(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED')


@exc_filters.filters(  # type: ignore[untyped-decorator]  # oslo.db has no hints
    'postgresql',
    sa.exc.OperationalError,
    r'.*connection to server .* failed(?!.*(?:authentication|does not exist))',
)
def _tell_lost_connection(
    error: Exception, match: Any, engine_name: str, is_disconnect: bool
) -> None:
    """Recognize a lost connection: oslo.db knows only the messages of older PostgreSQL clients."""
    raise db_exc.DBConnectionError(error)


def retried(endpoint: F) -> F:
    """Run an endpoint again after a deadlock or a broken connection.

    A transaction whose connection broke before the COMMIT was rolled back. If it broke during the
    COMMIT, ``unit_of_work.transact`` finds out whether it was committed, so that nothing happens
    twice. Other transactions of an endpoint must have the same effect and result when they are
    repeated. An endpoint does everything else after its transaction.
    """
    wrapped: F = oslo_db_api.wrap_db_retry(
        max_retries=10,
        retry_on_deadlock=True,
        retry_on_disconnect=True,
        retry_interval=0.02,
        inc_retry_interval=True,
        max_retry_interval=1,
    )(endpoint)
    return wrapped
