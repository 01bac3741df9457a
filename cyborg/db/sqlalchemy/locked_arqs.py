# SPDX-License-Identifier: Apache-2.0
"""Rows of accelerator requests that nobody else changes until the transaction ends.

The caller names the states in which it wants to change a request. A request that has left them
since it was read is not among the rows.
"""

import datetime
from collections.abc import Collection

from sqlalchemy import orm

from cyborg.db.sqlalchemy import arqs, models
from cyborg.objects.arq_states import State

Arq = models.ExtArq


def by_id(session: orm.Session, ids: Collection[int]) -> list[Arq]:
    """Those of these that exist, in any state."""
    return arqs.locked(session, Arq.id.in_(ids)) if ids else []


def by_uuid(session: orm.Session, uuids: Collection[str]) -> list[Arq]:
    """Those of these that exist, in any state."""
    return arqs.locked(session, Arq.uuid.in_(uuids))


def on_host(session: orm.Session, hostname: str) -> list[Arq]:
    """All requests that are bound, or being bound, to a host."""
    return arqs.locked(session, Arq.hostname == hostname)


def in_states(session: orm.Session, uuid: str, states: Collection[State]) -> list[Arq]:
    """The request, if it is in one of these states."""
    return arqs.locked(session, Arq.uuid == uuid, Arq.state.in_(states))


def in_other_states(session: orm.Session, arq_id: int, states: Collection[State]) -> list[Arq]:
    """The request, if it is in none of these states."""
    return arqs.locked(session, Arq.id == arq_id, Arq.state.not_in(states))


def of_server(session: orm.Session, server: str, providers: Collection[str], state: State,
              before: datetime.datetime) -> list[Arq]:
    """The requests of a server on these providers that are in this state since before then."""
    return arqs.locked(session, Arq.instance_uuid == server, Arq.device_rp_uuid.in_(providers),
                       Arq.state == state, Arq.updated_at < before)
