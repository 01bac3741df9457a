# SPDX-License-Identifier: Apache-2.0
"""Every conductor shows the figures that the last round of any conductor has stored."""

import prometheus_client
import pytest

from cyborg.conductor.metrics import Metrics
from cyborg.db.sqlalchemy import engine, rounds

INTERVAL = 3600


@pytest.fixture
def sample(db):
    """Reads one sample of a scrape."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(Metrics(db))
    return lambda name, **labels: registry.get_sample_value(f'cyborg_{name}', labels)


def store(db, name, **figures):
    with db.writer() as session:
        rounds.finish(session, rounds.take(session, name, INTERVAL), INTERVAL, figures)


def test_before_the_first_round_there_are_no_figures(sample):
    assert sample('devices_missing') is None
    assert sample('figures_age_seconds', round='sweep') is None


def test_figures_are_shown_with_their_labels_and_their_age(db, sample):
    store(db, 'sweep', arqs={'Bound': 3, 'Initial': 1}, devices_missing=2)
    assert sample('arqs', state='Bound') == 3
    assert sample('arqs', state='Initial') == 1
    assert sample('devices_missing') == 2
    assert 0 <= sample('figures_age_seconds', round='sweep') < INTERVAL


def test_the_figures_of_all_rounds_are_shown(db, sample):
    store(db, 'sweep', devices_missing=2)
    store(db, 'audit', audit_findings=5)
    assert sample('devices_missing') == 2
    assert sample('audit_findings') == 5


def test_what_a_sweep_stores_for_itself_is_no_metric(db, sample):
    store(db, 'sweep', silent_since='2026-01-01', devices_missing=0)
    assert sample('silent_since') is None
    assert sample('devices_missing') == 0


def test_a_scrape_without_a_database_succeeds_and_lacks_the_figures(tmp_path, caplog):
    empty = engine.Database(f'sqlite:///{tmp_path}/without_tables.db')
    registry = prometheus_client.CollectorRegistry()
    registry.register(Metrics(empty))
    assert prometheus_client.generate_latest(registry) == b''
    empty.close()
