# SPDX-License-Identifier: Apache-2.0
"""The time, by the clock of the database: those of several conductors may differ."""

import datetime
import time
from typing import Any

import sqlalchemy as sa
from oslo_log import log
from oslo_utils import timeutils
from sqlalchemy.dialects import mysql
from sqlalchemy.ext import compiler
from sqlalchemy.sql import functions

LOG = log.getLogger(__name__)
UTC = datetime.UTC
#: the difference between two clocks that is not corrected
TOLERANCE = datetime.timedelta(seconds=0.5)


class Moment(sa.TypeDecorator[datetime.datetime]):
    """A point in time: UTC in the column, aware in Python, to the microsecond everywhere."""

    impl = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
    cache_ok = True

    def process_bind_param(self, value: datetime.datetime | None, dialect: Any) -> Any:
        return None if value is None else timeutils.normalize_time(value)

    def process_result_value(self, value: datetime.datetime | None, dialect: Any) -> Any:
        return None if value is None else value.replace(tzinfo=UTC)


#: the time by the clock of this machine when the process began, and the seconds of a clock that
#: nobody sets
_BEGAN, _BEGAN_AT = datetime.datetime.now(UTC), time.monotonic()


class _Clock:
    """How far the clock of the database is ahead of ``local_now``."""

    ahead = datetime.timedelta()


def local_now() -> datetime.datetime:
    """Returns the present time by the clock that this machine had when the process began.

    If the clock is set later, ``now`` must not jump with it: it would be wrong until ``follow`` is
    called, and heartbeats and deadlines that were stored meanwhile would stay wrong.
    """
    return _BEGAN + datetime.timedelta(seconds=time.monotonic() - _BEGAN_AT)


def now() -> datetime.datetime:
    """Returns the present time by the clock of the database, as Moment columns return it.

    Deadlines, leases and liveness are compared by several conductors, whose clocks may differ.
    The database is not queried for each call: ``follow`` is called with its time now and then.
    """
    return local_now() + _Clock.ahead


def follow(told: datetime.datetime, asked: datetime.datetime) -> None:
    """Correct ``now`` by the clock of the database.

    :param told: the time of the database
    :param asked: ``local_now`` when the database was asked
    """
    # the database has read its clock at some moment between the query and its result
    least, most = told - local_now(), told - asked
    if least - TOLERANCE <= _Clock.ahead <= most + TOLERANCE:
        return
    is_right = least - TOLERANCE <= datetime.timedelta() <= most + TOLERANCE
    _Clock.ahead = datetime.timedelta() if is_right else least + (most - least) / 2
    LOG.warning(
        'The clock of the database is %.1f seconds ahead of the clock of this machine; the clock '
        'of the database is used.',
        _Clock.ahead.total_seconds(),
    )


class database_now(functions.FunctionElement[datetime.datetime]):
    """Returns the present time by the database's clock: those of conductors may differ."""

    type = Moment()
    inherit_cache = True


#: in UTC, to the microsecond as columns have it
_DATABASE_NOW = {
    'sqlite': "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    'mysql': 'UTC_TIMESTAMP(6)',
    'mariadb': 'UTC_TIMESTAMP(6)',
    'postgresql': "timezone('utc', clock_timestamp())",
}


@compiler.compiles(database_now)
def _compile_now(element: database_now, compiled: Any, **options: Any) -> str:
    return _DATABASE_NOW[compiled.dialect.name]


class milliseconds_between(functions.FunctionElement[int]):
    """Returns the milliseconds from one moment to a later one."""

    type = sa.BigInteger()
    inherit_cache = True


#: SQLite has no finer unit
_MILLISECONDS_BETWEEN = {
    'sqlite': 'CAST(ROUND((julianday({later}) - julianday({earlier})) * 86400000) AS INTEGER)',
    'mysql': '(TIMESTAMPDIFF(MICROSECOND, {earlier}, {later}) DIV 1000)',
    'mariadb': '(TIMESTAMPDIFF(MICROSECOND, {earlier}, {later}) DIV 1000)',
    'postgresql': 'CAST(EXTRACT(EPOCH FROM ({later} - {earlier})) * 1000 AS BIGINT)',
}


@compiler.compiles(milliseconds_between)
def _compile_between(element: milliseconds_between, compiled: Any, **options: Any) -> str:
    earlier, later = (compiled.process(each, **options) for each in element.clauses)
    return _MILLISECONDS_BETWEEN[compiled.dialect.name].format(earlier=earlier, later=later)
