# SPDX-License-Identifier: Apache-2.0
"""Reads the database of the upstream service. It is never written to."""

import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from cyborg import errors

#: the revision of the schema of release 17.0.0
NEWEST = 'b47c8f2d1e3a'
VERSIONS = 'alembic_version'

#: table -> (columns that are needed, columns that other releases may lack)
TABLES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    name: (frozenset(needed.split()), frozenset(other.split()))
    for name, needed, other in (
        ('device_profiles', 'id uuid name profile_json', 'description'),
        (
            'devices',
            'id uuid type vendor model hostname std_board_info vendor_board_info',
            'status device_state',
        ),
        ('controlpath_ids', 'id device_id cpid_type cpid_info', 'uuid'),
        (
            'deployables',
            'id uuid name device_id parent_id num_accelerators rp_uuid',
            'root_id driver_name bitstream_id',
        ),
        ('attributes', 'id deployable_id key value', 'uuid'),
        (
            'attach_handles',
            'id uuid deployable_id in_use attach_type attach_info',
            'cpid_id',
        ),
        (
            'extended_accelerator_requests',
            'id uuid state device_profile_id device_profile_group_id hostname device_rp_uuid '
            'instance_uuid attach_handle_id',
            'project_id substate deployable_id',
        ),
    )
}
STAMPS = frozenset({'created_at', 'updated_at'})

Row = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """The rows of the other service, by table; each row has all columns of TABLES."""

    revision: str
    #: columns of newer releases that this database lacks
    lacking: list[str]
    rows: dict[str, list[Row]] = field(repr=False)

    def __getitem__(self, table: str) -> list[Row]:
        return self.rows[table]


def read(url: str, ours: str) -> Content:
    """Read everything in one transaction. ``ours`` is the URL of our own database. Raises
    ConfigError, with what to do, if the URL names no database that can be imported."""
    parsed = _parse(url)
    if _is_same(parsed, sa.make_url(ours)):
        raise errors.ConfigError(
            why='--from names the database of [database] connection, which is the one to import '
            'into. Give this service an empty database of its own, create its tables with '
            'cyborg-dbsync upgrade, and name the database of the other service with --from.'
        )
    engine = _engine(parsed)
    try:
        with _snapshot(engine) as connection:
            return _read(connection, parsed)
    except sa.exc.SQLAlchemyError as error:
        raise errors.ConfigError(
            why=f'The database of --from cannot be read: {_first_line(error)}. Check host, '
            'user, password and name of the database in the URL.'
        ) from error
    finally:
        engine.dispose()


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise errors.ConfigError(
            why='--from is not the URL of a database; it looks like '
            'mysql+pymysql://user:password@host/cyborg.'
        ) from error
    # the drivers that OpenStack uses: SQLAlchemy's defaults are seldom there
    usual = {'mysql': 'pymysql', 'mariadb': 'pymysql', 'postgresql': 'psycopg2'}
    if parsed.drivername in usual:
        return parsed.set(drivername=f'{parsed.drivername}+{usual[parsed.drivername]}')
    return parsed


def _is_same(one: sa.URL, other: sa.URL) -> bool:
    def place(url: sa.URL) -> tuple[object, ...]:
        kind = url.get_backend_name().replace('mariadb', 'mysql')
        return kind, (url.host or '').lower(), url.port, url.database

    return place(one) == place(other)


def _engine(url: sa.URL) -> sa.Engine:
    try:
        if url.get_backend_name() == 'sqlite':
            # SQLite would create a file that does not exist
            with open(url.database or '', 'rb'):
                pass
        return sa.create_engine(url, poolclass=sa.NullPool)
    except sa.exc.NoSuchModuleError as error:
        raise errors.ConfigError(
            why=f'--from names a kind of database that is not known, {url.drivername}: use '
            'mysql+pymysql, postgresql+psycopg2 or sqlite.'
        ) from error
    except ModuleNotFoundError as error:
        raise errors.ConfigError(
            why=f'{url.drivername} needs the Python module {error.name}, which is not installed '
            'here: install it, or name another driver in the URL.'
        ) from error
    except OSError as error:
        raise errors.ConfigError(
            why=f'The database file of --from cannot be opened: {error.strerror}.'
        ) from error


@contextlib.contextmanager
def _snapshot(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that sees one state of the database, and is rolled back."""
    with engine.connect() as connection:
        if engine.dialect.name != 'sqlite':
            connection = connection.execution_options(isolation_level='REPEATABLE READ')
        try:
            yield connection
        finally:
            connection.rollback()


def _read(connection: sa.Connection, url: sa.URL) -> Content:
    inspector = sa.inspect(connection)
    present = {
        table: {column['name'] for column in inspector.get_columns(table)}
        for table in set(inspector.get_table_names()) & {*TABLES, VERSIONS, 'ext_arqs'}
    }
    name = url.database
    if 'ext_arqs' in present:
        raise errors.ConfigError(
            why=f'Database {name} is one of this service, not of the upstream service. --from '
            'names the database to import from.'
        )
    if not present:
        raise errors.ConfigError(
            why=f'Database {name} has no tables of Cyborg: check the name of the database in '
            '--from.'
        )
    revision = _revision(connection, present, name)
    lacking = _compare(present, revision, name)
    return Content(
        revision,
        lacking,
        {table: _rows(connection, table, present[table]) for table in TABLES},
    )


def _revision(connection: sa.Connection, present: Mapping[str, set[str]], name: str | None) -> str:
    query = sa.select(sa.column('version_num', sa.String())).select_from(sa.table(VERSIONS))
    found = list(connection.scalars(query)) if VERSIONS in present else []
    if len(found) != 1:
        raise errors.ConfigError(
            why=f'Database {name} does not say which schema it has (table {VERSIONS} has '
            f'{len(found)} rows): run the cyborg-dbsync upgrade of the upstream service first.'
        )
    return found[0]


def _compare(present: Mapping[str, set[str]], revision: str, name: str | None) -> list[str]:
    """Returns the columns that this schema lacks and that are not needed. Raises ConfigError if
    it lacks others, or has some that are not known."""
    missing, unknown, lacking = [], [], []
    for table, (needed, other) in TABLES.items():
        columns = present.get(table, set())
        missing += [f'{table}.{column}' for column in sorted(needed - columns)]
        lacking += [f'{table}.{column}' for column in sorted(other - columns)]
        unknown += [f'{table}.{column}' for column in sorted(columns - needed - other - STAMPS)]
    if missing or unknown:
        why = f'it lacks {", ".join(missing)}' if missing else f'it has {", ".join(unknown)}'
        way = (
            'upgrade it with the cyborg-dbsync of release 17.0.0 first'
            if missing
            else 'it belongs to a release that this one does not know, so use a newer release of '
            'this service'
        )
        raise errors.ConfigError(
            why=f'Database {name} has schema {revision}, which is not that of release 17.0.0 '
            f'({NEWEST}) nor an older one that can be read: {why}; {way}.'
        )
    return lacking


def _rows(connection: sa.Connection, table: str, present: set[str]) -> list[Row]:
    needed, other = TABLES[table]
    wanted = needed | other | STAMPS
    columns = [
        sa.column(name, sa.DateTime()) if name in STAMPS else sa.column(name)
        for name in sorted(wanted & present)
    ]
    query = sa.select(*columns).select_from(sa.table(table)).order_by(sa.column('id'))
    absent = dict.fromkeys(wanted - present)
    return [_plain(row._asdict()) | absent for row in connection.execute(query)]


def _plain(row: Mapping[str, Any]) -> Row:
    return {
        key: value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value
        for key, value in row.items()
    }


def _first_line(error: Exception) -> str:
    cause = getattr(error, 'orig', None) or error
    return str(cause).splitlines()[0].rstrip('.') if str(cause) else type(cause).__name__


def facts(text: str | None) -> dict[str, str] | None:
    """Returns a JSON object of strings; None if the text is something else."""
    try:
        parsed = json.loads(text or '{}')
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    return {str(key): str(value) for key, value in parsed.items()}
