# SPDX-License-Identifier: Apache-2.0
"""Filters, order and pages of every collection."""

from collections.abc import Mapping
from typing import Any, TypeVarTuple, cast

import sqlalchemy as sa
from oslo_db.sqlalchemy import utils
from sqlalchemy import orm

from cyborg import errors
from cyborg.db.sqlalchemy import models

Row = TypeVarTuple('Row')
Filters = Mapping[str, Any]
Page = Mapping[str, Any]


def page_of(
    session: orm.Session,
    query: sa.Select[*Row],
    model: Any,
    columns: Mapping[str, Any],
    filters: Filters,
    page: Page,
) -> sa.Select[*Row]:
    """Returns one page of the rows of a query that match the filters, after the row of ``marker``.

    The query has all rows that the caller may see. The marker must be one of these, but need not
    match the filters any more.
    """
    sort_key, marker = page.get('sort_key') or 'id', None
    if sort_key not in models.table(model).columns:
        raise errors.BadRequest(f'Cannot sort by {sort_key}.')
    if page.get('marker'):
        marker = session.scalar(
            query.with_only_columns(model, maintain_column_froms=True).where(
                model.uuid == page['marker']
            )
        )
        if marker is None:
            raise errors.MarkerNotFound(marker=page['marker'])
    keys = [sort_key] if sort_key == 'id' else [sort_key, 'id']
    wanted = utils.paginate_query(
        _filtered(query, columns, filters),
        model,
        page.get('limit'),
        keys,
        marker=marker,
        sort_dirs=[page.get('sort_dir') or 'asc'] * len(keys),
    )
    return cast(sa.Select[*Row], wanted)


def _filtered(
    query: sa.Select[*Row], columns: Mapping[str, Any], filters: Filters
) -> sa.Select[*Row]:
    """Add a condition for each filter to a query: its column equals the value, or one of a list."""
    for name, value in filters.items():
        if value is None:
            continue
        if name not in columns:
            raise errors.BadRequest(f'There is no filter {name} here.')
        column = columns[name]
        query = query.where(
            column.in_(value) if isinstance(value, list | tuple | set) else column == value
        )
    return query
