# SPDX-License-Identifier: Apache-2.0
"""Metrics of the whole cloud: one conductor counts them in its sweep, and all show them."""

from collections.abc import Iterator
from typing import Any

from oslo_log import log
from prometheus_client import core, registry

from cyborg.db.sqlalchemy import engine, rounds

# for the sweep
from cyborg.db.sqlalchemy.figures import figures as figures

LOG = log.getLogger(__name__)

#: how old the figures of a round are
AGE = 'cyborg_figures_age_seconds'
#: help text and label of each figure
FIGURES = {
    'arqs': ('Accelerator requests by state', 'state'),
    'devices': ('Devices by type', 'type'),
    'devices_at_fault': ('Devices with a fault', None),
    'devices_missing': ('Devices that are gone while requests hold a part of them', None),
    'agents': ('Agents by whether they sent a heartbeat lately', 'alive'),
    'cleanups_owed': ('Handles that wait for their host to clean them', None),
    'programmings_open': ('Images that hosts have to load', None),
    'handles_quarantined': ('Handles that could not be cleaned', None),
    'events_waiting': ('Events that Nova has not accepted yet', None),
    'events_given_up': ('Events that Nova refused for too long', None),
    'profile_fits': ('How often device profiles of metrics_profiles fit now', 'profile'),
    'audit_findings': ('Disagreements that the last audit found in the database', None),
}


#: name of each metric, as Prometheus stores it -> its labels
LABELS: dict[str, tuple[str, ...]] = {
    AGE: ('round',),
    **{f'cyborg_{name}': (label,) if label else () for name, (_, label) in FIGURES.items()},
}


class Metrics(registry.Collector):
    """Shows the stored figures of the last sweep. So every conductor shows the same, and a scrape
    needs one statement in a cloud of any size."""

    def __init__(self, db: engine.Database) -> None:
        self._db = db

    def collect(self) -> Iterator[Any]:
        try:
            with self._db.reader() as session:
                found = rounds.found(session)
        except Exception as error:
            # the scrape still has all other metrics; that the age is missing shows the failure
            LOG.warning('The figures cannot be read: %s', error)
            return
        ages = core.GaugeMetricFamily(
            AGE,
            'Seconds since the round that found the figures',
            labels=['round'],
        )
        for name, last in found.items():
            ages.add_metric([name], last.age)
            for figure in FIGURES.keys() & last.figures.keys():
                yield _family(figure, last.figures[figure])
        yield ages


def _family(figure: str, value: Any) -> Any:
    text, label = FIGURES[figure]
    name = f'cyborg_{figure}'
    if label is None:
        return core.GaugeMetricFamily(name, text, value)
    family = core.GaugeMetricFamily(name, text, labels=[label])
    for part, count in value.items():
        family.add_metric([part], count)
    return family
