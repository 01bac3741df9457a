# SPDX-License-Identifier: Apache-2.0
"""A private Nova with a fake hypervisor, in its own virtual environment with its own libraries.

Each of its services is a process: the API, a conductor, a scheduler, and as many nova-computes
as there are names. Everything else, the broker and the database server, Keystone, Placement,
Glance and a network service, is given.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tools.services.keystone import REGION, ROOT
from tools.services.packages import Missing
from tools.services.server import LOOPBACK, Server

CONFIGURATION = """\
[DEFAULT]
use_stderr = true
debug = false
host = {host}
my_ip = 127.0.0.1
transport_url = {transport}
state_path = {directory}
compute_driver = fake.FakeDriverWithoutFakeNodes
report_interval = 5
arq_binding_timeout = 60
# the fake hypervisor forgets its guests when it starts again
sync_power_state_interval = -1
[oslo_concurrency]
lock_path = {directory}/lock
[oslo_messaging_rabbit]
rabbit_retry_interval = 1
rabbit_interval_max = 2
[vnc]
enabled = false
[conductor]
workers = 1
[scheduler]
workers = 1
[glance]
region_name = {region}
[cyborg]
region_name = {region}
[keystone]
region_name = {region}
[service_user]
send_service_user_token = true
{login}
[keystone_authtoken]
www_authenticate_uri = {keystone}
{login}
[placement]
{login}
[neutron]
endpoint_override = {network}
{login}
"""
LOGIN = """\
auth_type = password
auth_url = {keystone}
username = {user}
password = {password}
project_name = {project}
user_domain_id = default
project_domain_id = default
region_name = {region}
"""
#: nova-compute refuses to start with these
DATABASES = """\
[api_database]
connection = {api_database}
[database]
connection = {database}
"""
SERVE = """\
import waitress
from nova.wsgi import osapi_compute
waitress.serve(osapi_compute.application, host='{host}', port={port}, threads=8, ident='nova')
"""


@dataclass(frozen=True)
class Surroundings:
    """What Nova uses, and how it logs in to Keystone."""

    transport: str
    api_database: str
    database: str
    cell0_database: str
    keystone: str
    network: str
    user: str
    password: str
    project: str


class Service(Server):
    """A service of Nova; `host` is its name in Nova."""

    has_database = True

    def __init__(self, name: str, surroundings: Surroundings, host: str = 'controller') -> None:
        super().__init__()
        self.name, self.host = name, host
        self._given = surroundings
        self._venv = pathlib.Path(
            os.environ.get('CYBORG_TEST_NOVA_VENV', ROOT / '.venv-nova')
        ).absolute()

    @property
    def url(self) -> str:
        return f'http://{LOOPBACK}:{self.port}'

    def find_programs(self) -> None:
        packages = self._venv / 'lib'
        for package in ('nova', 'pymysql', 'waitress'):
            if not list(packages.glob(f'python*/site-packages/{package}')):
                raise Missing(
                    f'{package} is not installed for Nova; run: rm -rf .venv-nova; make .venv-nova'
                )

    def prepare(self) -> None:
        given = self._given
        login = LOGIN.format(
            keystone=given.keystone,
            user=given.user,
            password=given.password,
            project=given.project,
            region=REGION,
        )
        text = CONFIGURATION.format(
            host=self.host,
            transport=given.transport,
            directory=self.directory,
            region=REGION,
            keystone=given.keystone,
            network=given.network,
            login=login,
        )
        if self.has_database:
            text += DATABASES.format(api_database=given.api_database, database=given.database)
        (self.directory / 'nova.conf').write_text(text)

    def command(self) -> list[str]:
        return [self._program(self.name), *self._options]

    def manage(self, *words: str) -> None:
        """Run nova-manage."""
        self.run(self._program('nova-manage'), *self._options, *words)

    def is_ready(self) -> bool:
        """It runs; the API of Nova tells whether it is up."""
        return True

    @property
    def _options(self) -> list[str]:
        return ['--config-file', str(self.directory / 'nova.conf')]

    def _program(self, name: str) -> str:
        return str(self._venv / 'bin' / name)


class Conductor(Service):
    """The conductor starts first, and so creates the tables."""

    def prepare(self) -> None:
        super().prepare()
        self.manage('api_db', 'sync')
        self.manage('cell_v2', 'map_cell0', '--database_connection', self._given.cell0_database)
        self.manage('cell_v2', 'create_cell', '--name', 'cell1')
        self.manage('db', 'sync')


class Api(Service):
    """The API, as a WSGI application."""

    def prepare(self) -> None:
        super().prepare()
        shutil.copy(self._venv / 'etc/nova/api-paste.ini', self.directory)

    def command(self) -> list[str]:
        return [self._program('python'), '-c', SERVE.format(host=LOOPBACK, port=self.port)]

    def environ(self) -> dict[str, str]:
        return super().environ() | {'OS_NOVA_CONFIG_DIR': str(self.directory)}

    def is_ready(self) -> bool:
        return self.serves('/')


class Compute(Service):
    """A nova-compute with a fake hypervisor."""

    has_database = False

    def prepare(self) -> None:
        super().prepare()
        # the id of its node, which it otherwise looks for in the database at the first start
        (self.directory / 'compute_id').write_text(str(uuid.uuid4()))


class Nova:
    """All services of Nova."""

    def __init__(self, surroundings: Surroundings, computes: Sequence[str]) -> None:
        self.surroundings = surroundings
        self.conductor = Conductor('nova-conductor', surroundings)
        self.scheduler = Service('nova-scheduler', surroundings)
        self.api = Api('nova-api', surroundings)
        self.computes = {
            name: Compute('nova-compute', surroundings, host=name) for name in computes
        }
        self._stack = contextlib.ExitStack()

    @property
    def url(self) -> str:
        return f'{self.api.url}/v2.1'

    @property
    def services(self) -> list[Service]:
        return [self.conductor, self.scheduler, self.api, *self.computes.values()]

    def __enter__(self) -> Self:
        with self._stack:
            self._stack.enter_context(self.conductor)
            others = [each for each in self.services if each is not self.conductor]
            for each in others:
                self._stack.callback(each.close)
            with concurrent.futures.ThreadPoolExecutor(len(others)) as pool:
                list(pool.map(lambda each: each.__enter__(), others))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()
