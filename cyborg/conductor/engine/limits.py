# SPDX-License-Identifier: Apache-2.0
"""Decides whether a project may have more accelerator requests."""

from dataclasses import dataclass
from typing import Protocol

from cyborg import errors
from cyborg.db.sqlalchemy import arqs, engine


class RequestLimits(Protocol):
    """Knows how many requests projects may have."""

    def of(self, project_id: str | None) -> int | None:
        """Returns the limit of a project; None: there is no limit. Raises LimitUnavailable."""


@dataclass(frozen=True)
class Allowance:
    """How many requests a project may have. It is read before the transaction, and an error is
    raised only if the transaction creates requests."""

    limit: int | None = None  #: None: any number
    error: errors.LimitUnavailable | None = None  #: why the limit is not known

    def require(self, session: engine.Session, project_id: str | None, wanted: int) -> None:
        """Raises OverLimit if the project may not have so many more requests."""
        if self.error is not None:
            raise self.error
        if self.limit is None:
            return
        used = arqs.count(session, project_id)
        if used + wanted > self.limit:
            raise errors.OverLimit(project=project_id, used=used, limit=self.limit, wanted=wanted)


UNLIMITED = Allowance()
