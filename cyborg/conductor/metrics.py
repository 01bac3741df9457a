# SPDX-License-Identifier: Apache-2.0
"""What an operator watches, in Prometheus' format: counted by whoever sweeps, told by anybody."""

from collections.abc import Callable, Iterator
from typing import Any

import prometheus_client
from oslo_log import log
from prometheus_client import core, registry

from cyborg.db.sqlalchemy import engine, rounds

# counted in the round of a sweep, which asks for them here
from cyborg.db.sqlalchemy.figures import figures as figures

LOG = log.getLogger(__name__)

#: what is told of each figure, and the label that tells its parts apart
FIGURES = {
    'arqs': ('Accelerator requests by state', 'state'),
    'devices': ('Devices by type', 'type'),
    'agents': ('Agents by whether they were heard of lately', 'alive'),
    'cleanups_owed': ('Handles that wait for their host to clean them', None),
    'programmings_open': ('Images that hosts have to load', None),
    'handles_quarantined': ('Handles that could not be cleaned', None),
    'events_waiting': ('Events that Nova has not taken yet', None),
    'events_given_up': ('Events that Nova refused for too long', None),
    'audit_findings': ('Disagreements that the last audit found in the database', None),
}


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


def _family(figure: str, value: Any) -> Any:
    text, label = FIGURES[figure]
    name = f'cyborg_{figure}'
    if label is None:
        return core.GaugeMetricFamily(name, text, value)
    family = core.GaugeMetricFamily(name, text, labels=[label])
    for part, count in value.items():
        family.add_metric([part], count)
    return family
