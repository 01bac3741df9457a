# SPDX-License-Identifier: Apache-2.0
"""Migrations that can be run again from their beginning, for MySQL and MariaDB.

There each DDL statement commits by itself, so that an interrupted migration leaves a part of its
work. These operations of alembic skip what is already done. On other databases a migration leaves
everything or nothing, and the operations of alembic are used as they are.

They look for names only. The schema is at the version before the migration, where a column or index
of this name cannot exist (or be missing, if it is dropped) unless the same migration was
interrupted. A table can also be left by an interrupted ``create_schema``, with other columns.
"""

from typing import Any

import sqlalchemy as sa
from alembic.ddl import mysql

from cyborg import errors

#: the dialects on which DDL is not transactional
DIALECTS = ('mysql', 'mariadb')


def require_columns(inspector: sa.Inspector, table: sa.Table) -> None:
    """Raises if a table of the database has other columns than this one."""
    present = {column['name'] for column in inspector.get_columns(table.name)}
    if present != {column.name for column in table.columns}:
        raise errors.ConfigError(
            why=f'The table {table.name} has other columns than it should. If a command was '
            'interrupted, cyborg-dbsync create_schema or upgrade, repeat the same command.'
        )


class _Repeatable(mysql.MySQLImpl):
    def create_table(self, table: sa.Table, **options: Any) -> None:
        inspector = sa.inspect(self.connection)
        if not inspector.has_table(table.name):
            super().create_table(table, **options)
            return
        require_columns(inspector, table)
        for index in table.indexes:
            self.create_index(index)

    def add_column(self, table_name: str, column: sa.Column[Any], **options: Any) -> None:
        if not self._has_column(table_name, column.name):
            super().add_column(table_name, column, **options)

    def drop_column(self, table_name: str, column: sa.Column[Any], **options: Any) -> None:
        if self._has_column(table_name, column.name):
            super().drop_column(table_name, column, **options)

    def create_index(self, index: sa.Index, **options: Any) -> None:
        if not self._has_index(index):
            super().create_index(index, **options)

    def drop_index(self, index: sa.Index, **options: Any) -> None:
        if self._has_index(index):
            super().drop_index(index, **options)

    def _has_column(self, table: str, name: str) -> bool:
        columns = sa.inspect(self.connection).get_columns(table)
        return name in [column['name'] for column in columns]

    def _has_index(self, index: sa.Index) -> bool:
        assert index.table is not None and index.name is not None
        return sa.inspect(self.connection).has_index(index.table.name, index.name)


# alembic uses the last class that was defined for a dialect.
class MySQL(_Repeatable):
    __dialect__ = 'mysql'


class MariaDB(_Repeatable, mysql.MariaDBImpl):
    __dialect__ = 'mariadb'
