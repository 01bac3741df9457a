# SPDX-License-Identifier: Apache-2.0
"""Makes requests that create something, or delete profiles, safe to repeat.

Each has an idempotency key: that of the client, or one that the API makes, so that it can repeat a
call to a conductor that did not answer. The first transaction with a key adds a receipt that lists
what was created. A repeated request returns that.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cyborg import errors, objects
from cyborg.conductor.endpoint import Endpoint
from cyborg.conductor.engine.unit_of_work import UnitOfWork
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import receipts
from cyborg.db.sqlalchemy.engine import Duplicate, Session

NAMESPACE = uuid.UUID('0a1c8f1e-6a0f-4b59-9a6e-54c1d3c8a1f7')
Made = TypeVar('Made', bound=objects.CyborgObject)


def create_once(
    endpoint: Endpoint,
    context: RequestContext,
    content: Sequence[Any],
    create: Callable[[UnitOfWork], list[Made]],
    show: Callable[[Session, list[str]], list[Made]],
) -> list[Made]:
    """Create objects, or return those that a request with the same key has created.

    ``content`` is the content of the request: two requests with the same key must have the same
    content. ``show`` returns the objects with these uuids, without those that were deleted.
    """
    key = _key(context, content)
    try:
        with endpoint.unit_of_work(context) as unit:
            made = create(unit)
            if key is not None:
                unit.note_made(key, [each.uuid for each in made])
            return made
    except (Duplicate, errors.CyborgError):
        # a repeated request may fail because its objects exist: names are unique
        if key is None:
            raise
        with endpoint.db.reader() as session:
            uuids = receipts.made(session, key)
            if uuids is None:
                raise
            found = {each.uuid: each for each in show(session, uuids)}
        if found.keys() != set(uuids):
            raise errors.IdempotencyKeySpent from None
        return [found[each] for each in uuids]


def _key(context: RequestContext, content: Sequence[Any]) -> receipts.Key | None:
    """Returns the key of a request, with its user and project: two users may send the same key."""
    if context.idempotency_key is None:
        return None
    whose = json.dumps([context.user_id, context.project_id, context.idempotency_key])
    told = json.dumps(content, sort_keys=True).encode()
    return receipts.Key(str(uuid.uuid5(NAMESPACE, whose)), hashlib.sha256(told).hexdigest())
