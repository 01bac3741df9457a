# SPDX-License-Identifier: Apache-2.0
"""Usage, as the conductor shows it to the API."""

from cyborg import objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import usage
from cyborg.conductor.sweep import HISTORY_SINCE, SWEEP
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import clock, rounds
from cyborg.db.sqlalchemy import usage as usage_db


class UsageReports(Endpoint):
    @exposed
    def get_usage(
        self, context: RequestContext, start: str | None, end: str | None, project_id: str | None
    ) -> objects.Usage:
        """Two statements, however many requests there are."""
        with self.db.reader() as session:
            last = rounds.found(session).get(SWEEP)
            told = last.figures.get(HISTORY_SINCE) if last is not None else None
            complete_since = usage.complete_since(told, self.history_since())
            interval = usage.interval(start, end, clock.now(), complete_since)
            projects = usage_db.by_project(session, interval.start, interval.end, project_id)
        return objects.Usage(
            start=interval.start,
            end=interval.end,
            complete_since=complete_since,
            projects=projects,
        )
