# SPDX-License-Identifier: Apache-2.0
"""Measures what hosts cost a conductor: heartbeats of known hosts, and reports of new ones."""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from cyborg import objects
from cyborg.accelerator.sysfs import Sysfs
from cyborg.cmd import startup
from cyborg.db.sqlalchemy import clock, engine, models
from tools import process_usage
from tools.bench.children import ROOT
from tools.bench.deployed_site import Services
from tools.bench.figures import Better, Figure
from tools.bench.scale import Scale
from tools.fleet import command
from tools.fleet.host import DRIVER, FleetHost

NAME = 'fleet'
DEVICES = 4
PROCESSES = 2
#: seconds: the agents' default, and the additional time that a heartbeat may take
PERIOD, GRACE = 60, 5
VERBS = ('select', 'insert', 'update', 'delete')
BATCH = 1_000


def measure(site: Services, scale: Scale) -> Iterator[Figure]:
    """Measure growing numbers of known hosts, then new hosts."""
    database = engine.Database(site.database)
    for hosts in scale.hosts:
        at = {'hosts': hosts}
        with _known(database, hosts):
            yield from _heartbeats(site, database, scale, at)
    yield from _registration(site, database, scale)
    database.close()


def _heartbeats(
    site: Services, database: engine.Database, scale: Scale, at: dict[str, int]
) -> Iterator[Figure]:
    before: dict[str, float] = {}

    def begin() -> None:  # the first interval is the warm-up
        before.update(_taken(site), statements=_statements(database))

    statistics = _run(site, at['hosts'], scale.fleet_seconds, begin, '--known')
    spent = {name: value - before[name] for name, value in _taken(site).items()}
    sent, seconds = statistics['counts']['sent'], statistics['seconds']
    # each query of the fleet is a statement, too
    statements = _statements(database) - before['statements'] - statistics['counts']['asked']
    for name, taken in spent.items():
        yield Figure(NAME, f'CPU {name}', '% of a core', taken / seconds * 100, at)
    yield Figure(NAME, 'CPU conductor a heartbeat', 'ms', spent['conductor'] / sent * 1000, at)
    yield Figure(NAME, 'statements a heartbeat', '1', statements / sent, at)
    yield Figure(NAME, 'statements', '1/s', statements / seconds, at, Better.NONE)
    yield Figure(NAME, 'messages', '1/s', sent / seconds, at, Better.NONE)
    yield from _times(statistics, at)
    yield Figure(NAME, 'periods missed', '1', statistics['counts']['missed'], at)
    yield Figure(NAME, 'failures', '1', statistics['counts']['failed'], at)
    yield Figure(NAME, 'hosts not heard in time', '1', _late(database), at)


def _registration(site: Services, database: engine.Database, scale: Scale) -> Iterator[Figure]:
    """Measure new hosts, each of which reports twice: at its start, and when it is ready."""
    at: dict[str, int | str] = {'new hosts': min(scale.hosts)}
    before, counted = _taken(site), _statements(database)
    statistics = _run(site, min(scale.hosts), scale.fleet_seconds, lambda: None, '--period', '5')
    spent = {name: value - before[name] for name, value in _taken(site).items()}
    reports = statistics['all']['looks']
    yield Figure(NAME, 'reports', '1', reports, at, Better.NONE)
    if reports:
        yield Figure(NAME, 'CPU conductor a report', 'ms', spent['conductor'] / reports * 1000, at)
        yield Figure(
            NAME, 'statements a report', '1', (_statements(database) - counted) / reports, at
        )
    yield from _times(statistics, at)


def _times(statistics: dict[str, Any], at: dict[str, Any]) -> Iterator[Figure]:
    for name, percentiles in statistics['times'].items():
        for percent, value in percentiles.items():
            yield Figure(NAME, f'{name} {percent}', 'ms', value, at)


def _run(site: Services, hosts: int, seconds: float, begin: Any, *more: str) -> dict[str, Any]:
    """Run a fleet for two intervals; returns the second, with the counts of both."""
    [conductor] = site.deployment.conductors
    argv = [
        sys.executable,
        '-m',
        'tools.fleet',
        '--json',
        '--config-file',
        site.directory / 'etc/cyborg.conf',
        '--hosts',
        str(hosts),
        '--devices',
        str(DEVICES),
        '--processes',
        str(PROCESSES),
        '--every',
        str(seconds),
        '--duration',
        str(seconds * 1.5),
        '--prefix',
        'fleet',
        '--conductor-pid',
        str(conductor.pid),
        *more,
    ]
    with (
        (site.directory / 'fleet.log').open('ab') as log,
        subprocess.Popen(
            argv,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={'PYTHONPATH': str(ROOT), 'PATH': '/usr/bin:/bin'},
        ) as process,
    ):
        try:
            process.stdout.readline()  # listening
            first = json.loads(process.stdout.readline())
            begin()
            second = json.loads(process.stdout.readline())
        except BaseException:
            process.terminate()
            raise
    second['all'] = {
        name: count + first['counts'][name] for name, count in second['counts'].items()
    }
    return second


def _taken(site: Services) -> dict[str, float]:
    processes = site.processes | site.servers
    return process_usage.cpu_by_name(
        {name: processes[name] for name in ('conductor', 'rabbitmq', 'mariadb')}
    )


def _statements(database: engine.Database) -> int:
    """Return the number of statements that the server has run since its start."""
    with database.engine.connect() as connection:
        rows = dict(connection.execute(sa.text("SHOW GLOBAL STATUS LIKE 'Com\\_%'")).all())
    return sum(int(rows[f'Com_{verb}']) for verb in VERBS)


def _late(database: engine.Database) -> int:
    """Return the number of hosts whose last heartbeat is too old, compared with the latest."""
    with database.reader() as session:
        moments = session.scalars(
            sa.select(models.Agent.last_heartbeat).where(models.Agent.hostname.startswith('fleet'))
        ).all()
    return sum((max(moments) - moment).total_seconds() > PERIOD + GRACE for moment in moments)


@contextlib.contextmanager
def _known(database: engine.Database, hosts: int) -> Iterator[None]:
    """Insert the rows that the reports of so many hosts would leave."""
    startup.CONF.reset()
    with tempfile.TemporaryDirectory() as name:
        conf = startup.configure([], default_config_files=[])
        sysfs = Sysfs(pathlib.Path(name))
        drivers = [{'name': DRIVER, 'status': objects.DriverStatus.OK, 'error': None}]
        rows = [
            {
                'hostname': each,
                'last_heartbeat': clock.now(),
                'sequence': 1,
                'stored_sequence': 1,
                'digest': FleetHost(conf, each, DEVICES, None, None, sysfs).assume_reported(),
                'is_ready': True,
                'drivers': drivers,
                'conflicts': {},
            }
            for each in command.host_names('fleet', hosts)
        ]
    for start in range(0, hosts, BATCH):
        with database.writer() as session:
            session.execute(sa.insert(models.Agent), rows[start : start + BATCH])
    try:
        yield
    finally:
        with database.writer() as session:
            session.execute(
                sa.delete(models.Agent).where(models.Agent.hostname.startswith('fleet'))
            )
