# SPDX-License-Identifier: Apache-2.0
"""Sessions: ``Database.reader`` and ``Database.writer``, each one transaction."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import enginefacade, exc_filters
from sqlalchemy import dialects, orm

from cyborg import errors

F = TypeVar('F', bound=Callable[..., Any])
#: for those who use sessions and must not know what they are made of
Session, Query = orm.Session, sa.Select
ConnectionLost, Duplicate = db_exc.DBConnectionError, db_exc.DBDuplicateEntry
#: these say nothing of what was to be stored: the transaction has to be repeated as a whole
TRANSIENT = (db_exc.DBDeadlock, db_exc.DBConnectionError)

WRITES = 'cyborg_writes'
#: seconds without use after which a connection is looked at before it is used again
RESTED = 5.0


class Database:
    """The conductor's database, by URL; pools and retries are oslo.db's options."""

    def __init__(self, connection: str | sa.URL | None) -> None:
        if not connection:
            raise errors.ConfigError(
                why='There is no database to use: set [database] connection.')
        try:
            is_file = sa.make_url(connection).get_backend_name() == 'sqlite'
            self.engine = _embedded(connection) if is_file else _served(connection)
            with self.engine.connect():
                pass
        except (db_exc.DBError, sa.exc.SQLAlchemyError, ImportError) as error:
            why = str(error).splitlines()[0]
            raise errors.ConfigError(
                why=f'The database of [database] connection cannot be used: {why}') from error
        self._sessions = orm.sessionmaker(self.engine, expire_on_commit=False)

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

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()


def _embedded(connection: str | sa.URL) -> sa.Engine:
    """SQLite: readers beside a writer, nothing lost by a crash, and writers queue.

    oslo.db would open the file anew for each transaction and, the last time it is closed, move
    what was written to another place: that takes longer than the transaction.
    """
    engine = sa.create_engine(connection)
    exc_filters.register_engine(engine)

    @sa.event.listens_for(engine, 'connect')
    def configure(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in ('journal_mode=WAL', 'busy_timeout=30000', 'foreign_keys=ON'):
            connection.execute(f'PRAGMA {pragma}')

    # A transaction that reads first and writes later can lose its snapshot and then fails at
    # once, whatever the time-out; one that is going to write says so when it begins.
    @sa.event.listens_for(engine, 'begin')
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql('BEGIN IMMEDIATE' if writes else 'BEGIN')

    return engine


def _served(connection: str | sa.URL) -> sa.Engine:
    """MariaDB or PostgreSQL."""
    dialects.plugins.register('cyborg', __name__, '_FewerTrips')
    facade = enginefacade.transaction_context()
    # threads need not be told to let others run
    facade.configure(connection=_with_all_characters(sa.make_url(connection)).update_query_pairs(
        [('plugin', 'cyborg')], append=True), thread_checkin=False)
    engine: sa.Engine = facade.writer.get_engine()
    _look_at_rested(engine)
    if engine.dialect.name == 'mysql':
        _show_what_is_committed(engine)
        engine.dispose()  # oslo.db has made a connection before it knew that
    return engine


def _with_all_characters(url: sa.URL) -> sa.URL:
    """MySQL and MariaDB take characters of four bytes only from connections that say so.

    oslo.db knows the errors of both by the name of MySQL alone, and so do the options of tables.
    """
    if url.get_backend_name() not in ('mysql', 'mariadb'):
        return url
    return url.set(drivername=url.drivername.replace('mariadb', 'mysql', 1)).update_query_dict(
        {'charset': 'utf8mb4'})


class _FewerTrips(sa.engine.CreateEnginePlugin):
    """Spares each transaction two trips to the server: "are you there" before it, and a rollback
    after its end. All of ours end by themselves, and what fails because the server went away is
    done again (``retried``)."""

    def update_url(self, url: sa.URL) -> sa.URL:
        return url  # says nothing to us

    def handle_pool_kwargs(self, pool_cls: type[sa.Pool], pool_args: dict[str, Any]) -> None:
        pool_args.update(pre_ping=False, reset_on_return=None)


def _look_at_rested(engine: sa.Engine) -> None:
    """A connection that was in use a moment ago is there; others may have gone with a server
    that was started anew, or been cut by somebody who thought them idle."""

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


def _show_what_is_committed(engine: sa.Engine) -> None:
    """What a statement sees must not be older than what an earlier one of ours waited for.

    Said once a connection. Said once a transaction, it would be taken back after each, and a
    server that is gone by then would make a failure of what was committed.
    """

    @sa.event.listens_for(engine, 'connect')
    def configure(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED')


@exc_filters.filters('postgresql', sa.exc.OperationalError,
                     r'.*connection to server .* failed(?!.*(?:authentication|does not exist))')
def _tell_lost_connection(error: Exception, match: Any, engine_name: str,
                          is_disconnect: bool) -> None:
    """oslo.db knows only what older clients of PostgreSQL say when the server is away."""
    raise db_exc.DBConnectionError(error)


def retried(endpoint: F) -> F:
    """Run an endpoint again after a deadlock or a broken connection.

    A transaction that broke before its COMMIT was undone. One that broke during it may be done:
    ``ledger.transact`` finds out, so that nothing happens twice. Any other transaction in an
    endpoint must have the same effect and answer when it is repeated. Everything else an endpoint
    does after its transaction.
    """
    wrapped: F = oslo_db_api.wrap_db_retry(
        max_retries=10, retry_on_deadlock=True, retry_on_disconnect=True, retry_interval=0.02,
        inc_retry_interval=True, max_retry_interval=1)(endpoint)
    return wrapped
