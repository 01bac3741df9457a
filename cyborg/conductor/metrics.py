# SPDX-License-Identifier: Apache-2.0
"""What an operator watches, in Prometheus' format: read from the rows when somebody asks."""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
import sqlalchemy as sa
from oslo_log import log
from prometheus_client import core, registry
from sqlalchemy import orm

from cyborg.conductor.audit import Audit
from cyborg.db.sqlalchemy import engine, models, nova_events

LOG = log.getLogger(__name__)


class Metrics(registry.Collector):
    """Nothing is counted in memory, so any conductor gives the same answer."""

    def __init__(self, db: engine.Database,
                 silent_since: Callable[[], datetime.datetime]) -> None:
        self._db = db
        self._silent_since = silent_since

    def collect(self) -> Iterator[Any]:
        with self._db.reader() as session:
            yield _by_label(
                session, 'cyborg_arqs', 'Accelerator requests by state', 'state',
                models.ExtArq.state, models.ExtArq)
            yield _by_label(
                session, 'cyborg_devices', 'Devices by type', 'type',
                models.Device.type, models.Device)
            agents = core.GaugeMetricFamily(
                'cyborg_agents', 'Agents by whether they were heard of lately', labels=['alive'])
            alive = models.Agent.last_heartbeat >= self._silent_since()
            agents.add_metric(['true'], _count(session, models.Agent, alive))
            agents.add_metric(['false'], _count(session, models.Agent, sa.not_(alive)))
            yield agents
            yield core.GaugeMetricFamily(
                'cyborg_cleanups_owed', 'Handles that wait for their host to clean them',
                _count(session, models.AttachHandle,
                       models.AttachHandle.cleanup_since.is_not(None)))
            yield core.GaugeMetricFamily(
                'cyborg_events_waiting', 'Events that Nova has not taken yet',
                _count(session, models.NovaEvent, models.NovaEvent.given_up_at.is_(None)))
            yield core.GaugeMetricFamily(
                'cyborg_events_given_up', 'Events that Nova refused for too long',
                nova_events.given_up(session))
        yield core.GaugeMetricFamily(
            'cyborg_audit_findings', 'Disagreements that an audit finds in the database',
            len(Audit(self._db).look()))

    def serve(self, host: str, port: int) -> Callable[[], None]:
        """Answer on a port; answers how to stop. One worker of a host is enough."""
        own = core.CollectorRegistry()
        own.register(self)
        try:
            server, _ = prometheus_client.start_http_server(port, host, own)
        except OSError as error:
            LOG.info('Metrics are not served here: %s:%s: %s', host, port, error.strerror)
            return lambda: None

        def stop() -> None:
            server.shutdown()
            server.server_close()
        return stop


def _count(session: orm.Session, model: Any, *where: Any) -> int:
    return session.scalar(sa.select(sa.func.count()).select_from(model).where(*where)) or 0


def _by_label(session: orm.Session, name: str, text: str, label: str, column: Any,
              model: Any) -> Any:
    family = core.GaugeMetricFamily(name, text, labels=[label])
    for value, count in session.execute(
            sa.select(column, sa.func.count()).select_from(model).group_by(column)):
        family.add_metric([value], count)
    return family
