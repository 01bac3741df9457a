# SPDX-License-Identifier: Apache-2.0
"""Filters, order and pages, alike for every collection."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from oslo_db.sqlalchemy import utils
from sqlalchemy import orm

from cyborg import errors

Filters = Mapping[str, Any]
Page = Mapping[str, Any]


def page_of(session: orm.Session, query: sa.Select[Any], model: Any, columns: Mapping[str, Any],
            filters: Filters, page: Page) -> sa.Select[Any]:
    """One page of those rows of a query that match, after the row that ``marker`` names.

    The query holds all that the caller may see; its marker must be among that, but need not
    match the filters any more.
    """
    sort_key, marker = page.get('sort_key') or 'id', None
    if sort_key not in model.__table__.columns:
        raise errors.BadRequest(f'Cannot sort by {sort_key}.')
    if page.get('marker'):
        marker = session.scalar(query.with_only_columns(model, maintain_column_froms=True)
                                .where(model.uuid == page['marker']))
        if marker is None:
            raise errors.MarkerNotFound(marker=page['marker'])
    keys = [sort_key] if sort_key == 'id' else [sort_key, 'id']
    return utils.paginate_query(
        _filtered(query, columns, filters), model, page.get('limit'), keys, marker=marker,
        sort_dirs=[page.get('sort_dir') or 'asc'] * len(keys))


def _filtered(query: sa.Select[Any], columns: Mapping[str, Any],
              filters: Filters) -> sa.Select[Any]:
    """Keep the rows whose columns equal the filters; a list means any of its values."""
    for name, value in filters.items():
        if value is None:
            continue
        if name not in columns:
            raise errors.BadRequest(f'There is no filter {name} here.')
        column = columns[name]
        query = query.where(
            column.in_(value) if isinstance(value, list | tuple | set) else column == value)
    return query
