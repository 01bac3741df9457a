# SPDX-License-Identifier: Apache-2.0
"""Endpoints for agents: reports, heartbeats and results of tasks."""

from oslo_log import log

from cyborg import errors, metrics, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import hosts, tasks
from cyborg.conductor.engine.changes import of_agent
from cyborg.conductor.engine.results import Results
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import agents
from cyborg.db.sqlalchemy import tasks as tasks_db
from cyborg.db.sqlalchemy.engine import TRANSIENT

LOG = log.getLogger(__name__)


class Reports(Endpoint):
    """Reports have their own topic, so that they do not delay the results of tasks, for which binds
    wait. Results, progress and the reports of earlier releases use the common topic."""

    @exposed
    def has_reports_topic(self, context: RequestContext) -> None:
        """Called by agents: conductors of earlier releases have neither this nor the topic."""

    @exposed
    def report(self, context: RequestContext, report: objects.Report) -> objects.Plan:
        """Apply a host's report; returns what the host must publish and perform."""
        try:
            return self._take_in(context, report)
        except (errors.CyborgError, *TRANSIENT):
            raise
        except Exception:
            LOG.exception(
                'The report of %s cannot be stored as a whole; each of its devices is '
                'stored apart.',
                report.hostname,
            )
            return self._take_in(context, report, is_apart=True)

    def _take_in(
        self, context: RequestContext, report: objects.Report, *, is_apart: bool = False
    ) -> objects.Plan:
        with self.unit_of_work(context, f'agent {report.hostname}') as unit:
            return hosts.take_report(unit, report, self.silent_since(), is_apart=is_apart)

    @exposed
    def finish_tasks(
        self, context: RequestContext, hostname: str, results: list[objects.TaskResult]
    ) -> list[objects.Task]:
        """Apply the results of tasks; returns the tasks that the host must perform next."""
        with self.unit_of_work(context, f'agent {hostname}') as unit:
            more = Results(unit, hostname, results, self.conf.conductor.attach_attempts).take()
        for result in results:
            metrics.TASKS.labels(
                result.kind, metrics.OK if result.error is None else metrics.FAILED
            ).observe(result.seconds)
        return more

    @exposed
    def note_progress(
        self, context: RequestContext, hostname: str, task_uuid: str, progress: str
    ) -> None:
        """Store the progress of a task."""
        with self.unit_of_work(context, f'agent {hostname}', is_repeatable=True) as unit:
            tasks_db.note_progress(unit.session, hostname, task_uuid, progress)

    @exposed
    def is_task_wanted(self, context: RequestContext, hostname: str, task_uuid: str) -> bool:
        """Called by agents before they fetch an image, and before they load it."""
        with self.db.reader() as session:
            return tasks.is_wanted(session, hostname, task_uuid)


class Heartbeats(Endpoint):
    """Heartbeats have a topic of their own. Agents of earlier releases use the common one."""

    @exposed
    def heartbeat(self, context: RequestContext, hostname: str, digest: str) -> None:
        """Record that the host is unchanged; ask for a report if the stored digest differs."""
        with self.unit_of_work(context, f'agent {hostname}', is_repeatable=True) as unit:
            beat = agents.beat(unit.session, hostname, digest, self.silent_since())
            if not beat.is_current:
                unit.hosts_to_remind.add(hostname)
            if beat.was_silent:
                unit.note(of_agent(hostname, 'up'))
