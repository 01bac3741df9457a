# SPDX-License-Identifier: Apache-2.0
"""One conductor at a time sweeps, and every conductor can return the results."""

import concurrent.futures
import datetime

import pytest
import sqlalchemy as sa
from prometheus_client import core, exposition

from cyborg.conductor.metrics import Metrics
from cyborg.conductor.sweep import Sweep
from cyborg.db.sqlalchemy import clock, models
from tests.fixtures.cloud import Cloud

#: so that none of them wakes by itself
SETTINGS = '[conductor]\nsweep_interval = 86400\n'


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def cloud(tmp_path):
    made = Cloud(tmp_path, conductors=2, more=SETTINGS)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def sweeps(cloud, monkeypatch):
    """The conductors that have swept."""
    done, sweep = [], Sweep.sweep

    def noted(self):
        done.append(self)
        sweep(self)

    monkeypatch.setattr(Sweep, 'sweep', noted)
    return done


def let_leases_end(cloud):
    """As if time had passed."""
    with cloud.standalone.db.writer() as session:
        session.execute(
            sa.update(models.Round).values(until=clock.now() - datetime.timedelta(days=1))
        )


def conductors(cloud):
    return [conductor.sweep for conductor in cloud.standalone.conductors]


def scrape(cloud):
    registry = core.CollectorRegistry()
    registry.register(Metrics(cloud.standalone.db))
    return exposition.generate_latest(registry).decode()


def test_two_conductors_that_wake_together_sweep_once(cloud, sweeps):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda conductor: conductor.round(), conductors(cloud) * 3))
    assert len(sweeps) == 1
    # and once again when it is due
    let_leases_end(cloud)
    waits = [conductor.round() for conductor in conductors(cloud)]
    assert len(sweeps) == 2
    assert all(0 < wait <= 86400 for wait in waits)


def test_a_conductor_that_is_killed_as_it_sweeps_is_replaced_when_its_lease_ends(
    cloud, sweeps, monkeypatch
):
    first, second = conductors(cloud)

    def die(*arguments):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(first, '_prune', die)
        with pytest.raises(Killed):
            first.round()
    second.round()
    assert sweeps == [first]
    let_leases_end(cloud)
    second.round()
    assert sweeps == [first, second]


def test_what_a_conductor_found_is_told_by_any(cloud):
    assert 'cyborg_arqs' not in scrape(cloud)
    cloud.profile('p', {'resources:FPGA': '2'})
    cloud.request('p')
    conductors(cloud)[0].round()
    text = scrape(cloud)
    assert 'cyborg_arqs{state="Initial"} 2.0' in text
    assert 'cyborg_audit_findings 0.0' in text
    assert 'cyborg_figures_age_seconds{round="sweep"}' in text
    # as it was then
    cloud.request('p')
    assert 'cyborg_arqs{state="Initial"} 2.0' in scrape(cloud)


def test_the_figures_of_a_conductor_that_slept_beyond_its_lease_are_not_kept(cloud, monkeypatch):
    cloud.profile('p', {'resources:FPGA': '1'})
    first, second = conductors(cloud)
    finish = first._finish

    def oversleep(*arguments):
        cloud.request('p')
        let_leases_end(cloud)
        second.round()
        finish(*arguments)

    monkeypatch.setattr(first, '_finish', oversleep)
    monkeypatch.setattr(first, '_audit', lambda: None)
    first.round()
    assert 'cyborg_arqs{state="Initial"} 1.0' in scrape(cloud)


def test_a_scrape_costs_one_statement(cloud):
    conductors(cloud)[0].round()
    with cloud.statements() as statements:
        scrape(cloud)
    assert len(statements) == 1
