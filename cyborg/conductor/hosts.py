# SPDX-License-Identifier: Apache-2.0
"""What agents say: reports, heartbeats, results of tasks."""

from oslo_log import log

from cyborg import errors, objects
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.engine import hosts
from cyborg.conductor.engine.results import Results
from cyborg.context import RequestContext
from cyborg.db.sqlalchemy import agents, tasks
from cyborg.db.sqlalchemy.engine import TRANSIENT

LOG = log.getLogger(__name__)


class Hosts(Endpoint):

    @exposed
    def report(self, context: RequestContext, report: objects.Report) -> objects.Plan:
        """Take in the picture of a host; returns what to publish and to do."""
        try:
            return self._take_in(context, report)
        except (errors.CyborgError, *TRANSIENT):
            raise
        except Exception:
            LOG.exception('The report of %s cannot be stored as a whole; each of its devices is '
                          'stored apart.', report.hostname)
            return self._take_in(context, report, is_apart=True)

    def _take_in(self, context: RequestContext, report: objects.Report, *,
                 is_apart: bool = False) -> objects.Plan:
        with self.unit_of_work(context, f'agent {report.hostname}') as unit:
            return hosts.take_report(unit, report, is_apart=is_apart)

    @exposed
    def finish_tasks(self, context: RequestContext, hostname: str,
                     results: list[objects.TaskResult]) -> list[objects.Task]:
        """Note how tasks ended; returns those that the host has to do next."""
        with self.unit_of_work(context, f'agent {hostname}') as unit:
            return Results(unit, hostname, results, self.conf.conductor.attach_attempts).take()

    @exposed
    def note_progress(self, context: RequestContext, hostname: str, task_uuid: str,
                      progress: str) -> None:
        """Note how far a host has got with a task."""
        with self.unit_of_work(context, f'agent {hostname}', is_repeatable=True) as unit:
            tasks.note_progress(unit.session, hostname, task_uuid, progress)


class Heartbeats(Endpoint):
    """Has a topic of its own. Agents of earlier releases send theirs among all else."""

    @exposed
    def heartbeat(self, context: RequestContext, hostname: str, digest: str) -> None:
        """The host is as it was; if that is not what we have, it should tell us."""
        with self.unit_of_work(context, f'agent {hostname}', is_repeatable=True) as unit:
            if not agents.beat(unit.session, hostname, digest):
                unit.hosts_to_remind.add(hostname)
