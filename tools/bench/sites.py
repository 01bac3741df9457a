# SPDX-License-Identifier: Apache-2.0
"""Sites: running deployments of Cyborg that are measured, and their floors."""

import abc
import contextlib
import json
import pathlib
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from tools.bench.children import Child
from tools.bench.load import Load, Outcome

HOST = 'compute1'
PROFILE = 'bench'
GROUP = {'resources:FPGA': '1', 'trait:CUSTOM_FAKE_DEVICE': 'required'}
#: threads of a process that serve requests
THREADS = 4
LATEST = {'OpenStack-API-Version': 'accelerator latest'}


class Site(abc.ABC):
    """The interface of a running deployment for measurements."""

    name: str
    #: the addresses of the API and of the bare application, under the same kind of server
    address: tuple[str, int]
    bare: tuple[str, int]
    #: the headers of all requests, with tokens
    headers: Mapping[str, str] = {}
    #: the URLs of the databases of Cyborg and of Placement
    database: str
    placement_database: str
    #: Placement runs in the process of Cyborg
    has_placement_within = False
    #: the uuids of the resource providers of the host's devices
    providers: list[str]
    #: process ids of the services of Cyborg, by name
    processes: dict[str, list[int]]
    #: process ids of broker and database, by name
    servers: dict[str, list[int]]
    #: process ids of the floor: bare HTTP, bare RPC, bare SQL
    bare_processes: dict[str, list[int]]
    directory: pathlib.Path
    #: makes bare RPC calls and queries
    floor: Child

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.directory = pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix='cyborg-bench-'))
            )
            self.load = stack.enter_context(Load())
            self.start(stack.enter_context)
            self.prepare()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    # -- what a subclass implements --------------------------------------------------------

    @abc.abstractmethod
    def start(self, enter: Callable[[Any], Any]) -> None:
        """Start all services; ``enter`` enters a context that ends with the site."""

    @contextlib.contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        """Count statements, calls, casts and Placement calls; the result is complete at the end."""
        yield {}

    def engines(self) -> dict[str, str]:
        """Return environment variables that name the broker, and a database on the same server."""
        return {}

    @abc.abstractmethod
    def placement_cpu(self) -> float:
        """Return the CPU seconds that Placement has used."""

    @abc.abstractmethod
    def start_times(self) -> Iterator[tuple[str, float]]:
        """Restart the services; yields their names and the seconds until each responds."""

    # -- what all have in common -----------------------------------------------------------

    @property
    def life(self) -> dict[str, Any]:
        """The arguments of a client for the scenario life."""
        return {'profile': PROFILE, 'host': HOST, 'providers': self.providers}

    def prepare(self) -> None:
        """Create the device profile, and read the providers of the host."""
        self.ask('POST', '/device_profiles', [{'name': PROFILE, 'groups': [GROUP]}])
        deployables = self.ask('GET', '/deployables')['deployables']
        self.providers = [each['rp_uuid'] for each in deployables]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that is not measured, and return the document."""
        request = urllib.request.Request(
            'http://{}:{}/v2{}'.format(*self.address, path),
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={'Content-Type': 'application/json', **LATEST, **self.headers},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            text = response.read()
        return json.loads(text) if text else None

    def run(self, scenario: str, clients: int, seconds: float, **facts: Any) -> Outcome:
        """Put load on the API."""
        return self.load.run(scenario, self.address, self.headers, clients, seconds, **facts)

    def bare_http(self, clients: int, seconds: float) -> Outcome:
        """Send requests to the bare application."""
        return self.load.run('once', self.bare, self.headers, clients, seconds, path='/')

    def bare_rpc(self, callers: int, seconds: float) -> Outcome:
        """Call the bare echo."""
        return Outcome(**self.floor.execute('rpc', callers=callers, seconds=seconds))

    def bare_sql(self, threads: int, seconds: float) -> Outcome:
        """Run the SQL of lives."""
        return Outcome(**self.floor.execute('sql', threads=threads, seconds=seconds, **self.life))

    def bare_query(self, what: str, limit: int, seconds: float) -> Outcome:
        """Read the rows of a list by bare SQL."""
        return Outcome(**self.floor.execute('query', what=what, limit=limit, seconds=seconds))


class Embedded(Site):
    """All services in one process: SQLite, messages in memory, Placement in process."""

    name = 'embedded'
    has_placement_within = True

    def start(self, enter: Callable[[Any], Any]) -> None:
        log = self.directory / 'child.log'
        self._child = enter(
            Child('tools.bench.embedded', str(self.directory), HOST, str(THREADS), log=log)
        )
        self.processes, self.servers = {'standalone': [self._child.pid]}, {}
        self.database = self._child.hello['database']
        self.placement_database = self._child.hello['placement_database']
        self.address = address(self._child.hello['url'])
        self.floor = enter(
            Child(
                'tools.bench.floor',
                '--transport',
                'kombu+memory://localhost//',
                '--database',
                self.database,
                log=self.directory / 'floor.log',
            )
        )
        self.bare_processes = dict.fromkeys(('http', 'rpc', 'sql'), [self.floor.pid])
        self.floor.execute('serve_rpc')
        self.bare = tuple(self.floor.execute('serve_http', threads=THREADS))

    @contextlib.contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        counts: dict[str, int] = {}
        self._child.execute('count')
        try:
            yield counts
        finally:
            counts |= self._child.execute('counted')

    def placement_cpu(self) -> float:
        return float(self._child.execute('placement_cpu'))

    def start_times(self) -> Iterator[tuple[str, float]]:
        began = time.monotonic()
        with Child(
            'tools.bench.embedded',
            str(self.directory / 'another'),
            HOST,
            str(THREADS),
            log=self.directory / 'another.log',
        ):
            yield 'standalone', time.monotonic() - began


def address(url: str) -> tuple[str, int]:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return parts.hostname or '', parts.port or 80
