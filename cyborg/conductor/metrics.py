# SPDX-License-Identifier: Apache-2.0
"""What an operator watches, in Prometheus' format: counted by whoever sweeps, told by anybody."""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
import sqlalchemy as sa
from oslo_log import log
from prometheus_client import core, registry
from sqlalchemy import orm

from cyborg.db.sqlalchemy import engine, models, nova_events, rounds

LOG = log.getLogger(__name__)

#: a range, which every database finds in an index; SQLite does not if asked for what is not null
LONG_AGO = datetime.datetime.min.replace(year=1970, tzinfo=datetime.UTC)


#: what is told of each figure, and the label that tells its parts apart
FIGURES = {
    'arqs': ('Accelerator requests by state', 'state'),
    'devices': ('Devices by type', 'type'),
    'agents': ('Agents by whether they were heard of lately', 'alive'),
    'cleanups_owed': ('Handles that wait for their host to clean them', None),
    'events_waiting': ('Events that Nova has not taken yet', None),
    'events_given_up': ('Events that Nova refused for too long', None),
    'audit_findings': ('Disagreements that the last audit found in the database', None),
}


def figures(session: orm.Session, silent_since: datetime.datetime) -> dict[str, Any]:
    """What the rows say, for the conductor whose round it is."""
    is_alive = models.Agent.last_heartbeat >= silent_since
    return {
        'arqs': _by(session, models.ExtArq, models.ExtArq.state),
        'devices': _by(session, models.Device, models.Device.type),
        'agents': {'true': _count(session, models.Agent, is_alive),
                   'false': _count(session, models.Agent, sa.not_(is_alive))},
        'cleanups_owed': _count(session, models.AttachHandle,
                                models.AttachHandle.cleanup_since > LONG_AGO),
        'events_waiting': _count(session, models.NovaEvent,
                                 models.NovaEvent.given_up_at.is_(None)),
        'events_given_up': nova_events.given_up(session)}


class Metrics(registry.Collector):
    """Tells what the last rounds found, so that any conductor gives the same answer and a scrape
    costs one statement, however large the cloud is."""

    def __init__(self, db: engine.Database) -> None:
        self._db = db

    def collect(self) -> Iterator[Any]:
        with self._db.reader() as session:
            found = rounds.found(session)
        ages = core.GaugeMetricFamily(
            'cyborg_figures_age_seconds', 'Seconds since the round that found the figures',
            labels=['round'])
        for name, last in found.items():
            ages.add_metric([name], last.age)
            for figure in FIGURES.keys() & last.figures.keys():
                yield _family(figure, last.figures[figure])
        yield ages

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


def _by(session: orm.Session, model: Any, column: Any) -> dict[str, int]:
    """How many there are of each value."""
    counted = sa.select(column, sa.func.count()).select_from(model).group_by(column)
    return {row[0]: row[1] for row in session.execute(counted)}


def _family(figure: str, value: Any) -> Any:
    text, label = FIGURES[figure]
    name = f'cyborg_{figure}'
    if label is None:
        return core.GaugeMetricFamily(name, text, value)
    family = core.GaugeMetricFamily(name, text, labels=[label])
    for part, count in value.items():
        family.add_metric([part], count)
    return family
