# SPDX-License-Identifier: Apache-2.0
"""What hosts cost a conductor: heartbeats of so many, and reports of those that are new."""

import contextlib
import json
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from cyborg import objects
from cyborg.accelerator.sysfs import Sysfs
from cyborg.cmd import startup
from cyborg.db.sqlalchemy import engine, models
from cyborg.sim import usage
from cyborg.sim.fleet import command
from cyborg.sim.fleet.host import DRIVER, Host
from tests.fixtures.processes import BIN
from tools.bench.children import ROOT
from tools.bench.figures import Better, Figure
from tools.bench.scale import Scale
from tools.bench.services import Services

NAME = 'fleet'
DEVICES = 4
PROCESSES = 2
#: seconds: the agents' default, and for how much longer a heartbeat may be on its way
PERIOD, GRACE = 60, 5
VERBS = ('select', 'insert', 'update', 'delete')
BATCH = 1_000


def measure(site: Services, scale: Scale) -> Iterator[Figure]:
    """Known hosts, more and more of them, then new ones."""
    database = engine.Database(site.database)
    for hosts in scale.hosts:
        at = {'hosts': hosts}
        with _known(database, hosts):
            yield from _heartbeats(site, database, scale, at)
    yield from _registration(site, database, scale)
    database.close()


def _heartbeats(site: Services, database: engine.Database, scale: Scale,
                at: dict[str, int]) -> Iterator[Figure]:
    before: dict[str, float] = {}

    def begin() -> None:  # the first interval is for warming up
        before.update(_taken(site), statements=_statements(database))

    told = _run(site, at['hosts'], scale.fleet_seconds, begin, '--known')
    spent = {name: value - before[name] for name, value in _taken(site).items()}
    sent, seconds = told['counts']['sent'], told['seconds']
    # each question of the fleet's whether a heartbeat arrived is a statement too
    statements = _statements(database) - before['statements'] - told['counts']['asked']
    for name, taken in spent.items():
        yield Figure(NAME, f'CPU {name}', '% of a core', taken / seconds * 100, at)
    yield Figure(NAME, 'CPU conductor a heartbeat', 'ms', spent['conductor'] / sent * 1000, at)
    yield Figure(NAME, 'statements a heartbeat', '1', statements / sent, at)
    yield Figure(NAME, 'statements', '1/s', statements / seconds, at, Better.NONE)
    yield Figure(NAME, 'messages', '1/s', sent / seconds, at, Better.NONE)
    yield from _times(told, at)
    yield Figure(NAME, 'periods missed', '1', told['counts']['missed'], at)
    yield Figure(NAME, 'failures', '1', told['counts']['failed'], at)
    yield Figure(NAME, 'hosts not heard in time', '1', _late(database), at)


def _registration(site: Services, database: engine.Database, scale: Scale) -> Iterator[Figure]:
    """Hosts that nobody knows yet: each reports twice, when it comes and when it is ready."""
    at: dict[str, int | str] = {'new hosts': min(scale.hosts)}
    before, counted = _taken(site), _statements(database)
    told = _run(site, min(scale.hosts), scale.fleet_seconds, lambda: None, '--period', '5')
    spent = {name: value - before[name] for name, value in _taken(site).items()}
    reports = told['all']['looks']
    yield Figure(NAME, 'reports', '1', reports, at, Better.NONE)
    if reports:
        yield Figure(NAME, 'CPU conductor a report', 'ms',
                     spent['conductor'] / reports * 1000, at)
        yield Figure(NAME, 'statements a report', '1',
                     (_statements(database) - counted) / reports, at)
    yield from _times(told, at)


def _times(told: dict[str, Any], at: dict[str, Any]) -> Iterator[Figure]:
    for name, percentiles in told['times'].items():
        for percent, value in percentiles.items():
            yield Figure(NAME, f'{name} {percent}', 'ms', value, at)


def _run(site: Services, hosts: int, seconds: float, begin: Any, *more: str) -> dict[str, Any]:
    """A fleet for two intervals; answers the second, and the counts of both."""
    [conductor] = site.deployment.conductors
    argv = [BIN / 'cyborg-sim', 'fleet', '--json', '--config-file',
            site.directory / 'etc/cyborg.conf', '--hosts', str(hosts), '--devices', str(DEVICES),
            '--processes', str(PROCESSES), '--every', str(seconds), '--duration',
            str(seconds * 1.5), '--prefix', 'fleet', '--conductor-pid', str(conductor.pid), *more]
    with (site.directory / 'fleet.log').open('ab') as log, subprocess.Popen(
            argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
            env={'PYTHONPATH': str(ROOT), 'PATH': '/usr/bin:/bin'}) as process:
        try:
            process.stdout.readline()  # listening
            first = json.loads(process.stdout.readline())
            begin()
            second = json.loads(process.stdout.readline())
        except BaseException:
            process.terminate()
            raise
    second['all'] = {name: count + first['counts'][name]
                     for name, count in second['counts'].items()}
    return second


def _taken(site: Services) -> dict[str, float]:
    processes = site.processes | site.servers
    return usage.cpu_by_name({name: processes[name]
                              for name in ('conductor', 'rabbitmq', 'mariadb')})


def _statements(database: engine.Database) -> int:
    """That the server has run since it started."""
    with database.engine.connect() as connection:
        rows = dict(connection.execute(sa.text("SHOW GLOBAL STATUS LIKE 'Com\\_%'")).all())
    return sum(int(rows[f'Com_{verb}']) for verb in VERBS)


def _late(database: engine.Database) -> int:
    """Hosts of the fleet whose last heartbeat is more than a period older than the latest."""
    with database.reader() as session:
        moments = session.scalars(sa.select(models.Agent.last_heartbeat).where(
            models.Agent.hostname.startswith('fleet'))).all()
    return sum((max(moments) - moment).total_seconds() > PERIOD + GRACE for moment in moments)


@contextlib.contextmanager
def _known(database: engine.Database, hosts: int) -> Iterator[None]:
    """Rows as the reports of so many hosts would have left them."""
    startup.CONF.reset()
    with tempfile.TemporaryDirectory() as name:
        conf = startup.configure([], default_config_files=[])
        sysfs = Sysfs(pathlib.Path(name))
        drivers = [{'name': DRIVER, 'status': objects.DriverStatus.OK, 'error': None}]
        rows = [{'hostname': each, 'last_heartbeat': models.now(), 'sequence': 1,
                 'digest': Host(conf, each, DEVICES, None, None, sysfs).agree(),
                 'is_ready': True, 'drivers': drivers, 'conflicts': {}}
                for each in command.names('fleet', hosts)]
    for start in range(0, hosts, BATCH):
        with database.writer() as session:
            session.execute(sa.insert(models.Agent), rows[start:start + BATCH])
    try:
        yield
    finally:
        with database.writer() as session:
            session.execute(sa.delete(models.Agent).where(
                models.Agent.hostname.startswith('fleet')))
