# SPDX-License-Identifier: Apache-2.0
"""A deployment as operators run it: RabbitMQ, MariaDB, Keystone, the API under uWSGI, and one
conductor worker."""

import os
import pathlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keystoneauth1 import session as keystone_session

from tests.fixtures.cloud import another_database, eventually
from tests.fixtures.identity import AUTHENTICATION, Identity
from tests.fixtures.processes import PATIENCE, Deployment, Process, is_there
from tools import process_usage, services
from tools.bench.children import ROOT, Child
from tools.bench.sites import HOST, THREADS, Site, address
from tools.services import keeper
from tools.services.keystone import REGION
from tools.services.server import free_port

#: longer intervals than in tests
CONDUCTOR = """\
sweep_interval = 30
heartbeat_timeout = 180
[placement]
auth_type = admin_token
endpoint = {placement}
token = admin
"""
#: deployers run several
PLACEMENT_PROCESSES = 2
AGENT = 'resync_interval = 60\n[fake_driver]\ndevices = 16\naccelerators = 16\n'


def uwsgi(port: int, module: str, arguments: str = '', processes: int = 1) -> list[str]:
    """Return the command line of workers with four threads each, behind uWSGI's own HTTP router.

    The router's buffer is one page by default. It sends a larger response in several pieces, and
    the second waits until the client's kernel has acknowledged the first: 40 ms per response.
    """
    venv = pathlib.Path(os.environ.get('CYBORG_BENCH_UWSGI_VENV', ROOT / '.venv-uwsgi'))
    program = venv.absolute() / 'bin/uwsgi'
    if not program.exists():
        raise services.Missing('uWSGI is not installed; run: make .venv-uwsgi')
    return [
        str(program),
        '--http',
        f'127.0.0.1:{port}',
        '--http-keepalive',
        '--http-buffer-size',
        '65536',
        '--master',
        '--processes',
        str(processes),
        '--threads',
        str(THREADS),
        '--enable-threads',
        '--lazy-apps',
        '--need-app',
        '--die-on-term',
        '--disable-logging',
        '--home',
        sys.prefix,
        '--pythonpath',
        str(ROOT),
        '--module',
        module,
        *(['--pyargv', arguments] if arguments else []),
    ]


class Services(Site):
    """Runs every service in its own process."""

    name = 'services'

    def start(self, enter: Callable[[Any], Any]) -> None:
        uwsgi(0, '')  # fail first if uWSGI is not installed
        broker, server = enter(services.rabbitmq()), enter(services.mariadb())
        identity = Identity(enter(services.keystone()))
        self.headers = _headers(identity)
        self.deployment = enter(
            Deployed(self.directory, broker.url, server.url, identity, self.headers)
        )
        self.deployment.start()
        self.deployment.host(HOST, more=AGENT)
        self.address = address(self.deployment.url)
        self.database = self.deployment.database.render_as_string(hide_password=False)
        self.placement_database = f'sqlite:///{self.deployment.directory}/placement.db'
        self._start_floor(enter, broker.url)
        self.servers = {'rabbitmq': broker.pids, 'mariadb': server.pids}

    def _start_floor(self, enter: Callable[[Any], Any], broker: str) -> None:
        port = free_port()
        process = Process(
            'bare', uwsgi(port, 'tools.bench.bare_app:application'), self.directory / 'log/bare.log'
        )
        process.start()
        enter(_killed(process))
        self.bare = '127.0.0.1', port
        eventually(lambda: is_there(f'http://127.0.0.1:{port}/'), PATIENCE)
        arguments = '--transport', broker, '--database', self.database
        echo, self.floor = (
            enter(Child('tools.bench.floor', *arguments, log=self.directory / f'{name}.log'))
            for name in ('echo', 'floor')
        )
        echo.execute('serve_rpc')
        self.bare_processes = {
            'http': [process.pid, *keeper.descendants_of(process.pid)],
            'rpc': [echo.pid, self.floor.pid],
            'sql': [self.floor.pid],
        }

    @property
    def processes(self) -> dict[str, list[int]]:
        """The workers and their parent processes."""
        running = self.deployment
        services = {
            'api': running.api,
            'conductor': running.conductors[0],
            'agent': running.agents[HOST],
        }
        return {
            name: [each.pid, *keeper.descendants_of(each.pid)] for name, each in services.items()
        }

    def engines(self) -> dict[str, str]:
        return {
            'CYBORG_TEST_TRANSPORT_URL': self.deployment.transport,
            'CYBORG_TEST_DATABASE_URL': another_database(
                self.database, f'bench_{uuid.uuid4().hex}'
            ),
        }

    def placement_cpu(self) -> float:
        parent = self.deployment.placement_process.pid
        return process_usage.cpu([parent, *keeper.descendants_of(parent)])

    def start_times(self) -> Iterator[tuple[str, float]]:
        running = self.deployment
        heard = running.heartbeat(HOST)
        for name, process, is_up in (
            ('conductor', running.conductors[0], running.answers),
            ('api', running.api, running.answers),
            ('agent', running.agents[HOST], lambda: running.heartbeat(HOST) > heard),
        ):
            process.kill()
            began = time.monotonic()
            process.start()
            eventually(is_up, PATIENCE)
            yield name, time.monotonic() - began


class Deployed(Deployment):
    """The deployment of the tests, with uWSGI and Keystone as in production."""

    def __init__(
        self,
        directory: pathlib.Path,
        transport: str,
        database: str,
        identity: Identity,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(
            directory,
            transport,
            database,
            conductor=CONDUCTOR,
            api=AUTHENTICATION.format(url=identity.url, password=identity.password, region=REGION),
        )
        port = address(self.url)[1]
        self.api = self.apis[0] = self._process(
            'api', uwsgi(port, 'cyborg.wsgi.api:application', ' '.join(self.api.argv[1:]))
        )
        self.placement_process = self._process(
            'placement',
            uwsgi(
                address(self.placement_url)[1],
                'tools.bench.placement_app:make()',
                str(directory / 'placement.db'),
                PLACEMENT_PROCESSES,
            ),
        )
        self.session.headers.update(headers)

    def show_logs(self) -> None:
        """Do not show the logs."""


class _killed:
    """Kills a process when the block ends."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        self._process.kill()


def _headers(identity: Identity) -> dict[str, str]:
    """Return the tokens of a user and of Nova as a service, which are used for the whole run."""
    user, nova = (
        keystone_session.Session(auth=identity.auth(name)).get_token() for name in ('admin', 'nova')
    )
    return {'X-Auth-Token': user, 'X-Service-Token': nova}
