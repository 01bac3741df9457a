# SPDX-License-Identifier: Apache-2.0
"""Where Cyborg runs while it is measured, and the floor beside it."""

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
#: that serve requests, in one process
THREADS = 4
LATEST = {'OpenStack-API-Version': 'accelerator latest'}


class Site(abc.ABC):
    """What measurements know of a running Cyborg."""

    name: str
    #: where the API answers, and the bare application under the same kind of server
    address: tuple[str, int]
    bare: tuple[str, int]
    #: who asks
    headers: Mapping[str, str] = {}
    #: for SQLAlchemy
    database: str
    #: of the host's devices
    providers: list[str]
    #: ours, by name
    processes: dict[str, list[int]]
    #: what they use
    servers: dict[str, list[int]]
    #: those of the floor: what serves bare HTTP, what answers and makes bare calls, SQL too
    bare_processes: dict[str, list[int]]
    directory: pathlib.Path
    #: calls and queries without us
    floor: Child

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.directory = pathlib.Path(stack.enter_context(
                tempfile.TemporaryDirectory(prefix='cyborg-bench-')))
            self.load = stack.enter_context(Load())
            self.start(stack.enter_context)
            self.prepare()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    # -- what a kind of site must say ------------------------------------------------------

    @abc.abstractmethod
    def start(self, enter: Callable[[Any], Any]) -> None:
        """Start everything; what is entered is left at the end."""

    @contextlib.contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        """Counts of statements, calls, casts, Placement calls; known when the block ends."""
        yield {}

    def engines(self) -> dict[str, str]:
        """How a process is told to use the same broker, and a database on the same server."""
        return {}

    @abc.abstractmethod
    def start_times(self) -> Iterator[tuple[str, float]]:
        """Start services anew; which, and seconds until each answers."""

    # -- what all have in common -----------------------------------------------------------

    @property
    def life(self) -> dict[str, Any]:
        """What a client has to know for a life."""
        return {'profile': PROFILE, 'host': HOST, 'providers': self.providers}

    def prepare(self) -> None:
        """Make the profile, and find out about the host."""
        self.ask('POST', '/device_profiles', [{'name': PROFILE, 'groups': [GROUP]}])
        deployables = self.ask('GET', '/deployables')['deployables']
        self.providers = [each['rp_uuid'] for each in deployables]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One request, not measured."""
        request = urllib.request.Request(
            'http://{}:{}/v2{}'.format(*self.address, path), method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={'Content-Type': 'application/json', **LATEST, **self.headers})
        with urllib.request.urlopen(request, timeout=120) as response:
            text = response.read()
        return json.loads(text) if text else None

    def run(self, scenario: str, clients: int, seconds: float, **facts: Any) -> Outcome:
        """Load on the API."""
        return self.load.run(scenario, self.address, self.headers, clients, seconds, **facts)

    def bare_http(self, clients: int, seconds: float) -> Outcome:
        """Requests to the bare application."""
        return self.load.run('once', self.bare, self.headers, clients, seconds, path='/')


    def bare_rpc(self, callers: int, seconds: float) -> Outcome:
        """Calls of a bare echo."""
        return Outcome(**self.floor.order('rpc', callers=callers, seconds=seconds))

    def bare_sql(self, threads: int, seconds: float) -> Outcome:
        """Lives of bare SQL."""
        return Outcome(**self.floor.order('sql', threads=threads, seconds=seconds, **self.life))

    def bare_query(self, what: str, limit: int, seconds: float) -> Outcome:
        """The rows of a list, without what makes a list of them."""
        return Outcome(**self.floor.order('query', what=what, limit=limit, seconds=seconds))


class Embedded(Site):
    """All in one process: SQLite, messages in memory, Placement in process."""

    name = 'embedded'

    def start(self, enter: Callable[[Any], Any]) -> None:
        log = self.directory / 'child.log'
        self._child = enter(Child('tools.bench.embedded', str(self.directory), HOST,
                                  str(THREADS), log=log))
        self.processes, self.servers = {'standalone': [self._child.pid]}, {}
        self.database = self._child.hello['database']
        self.address = address(self._child.hello['url'])
        self.floor = enter(Child('tools.bench.floor', '--transport',
                                  'kombu+memory://localhost//', '--database', self.database,
                                  log=self.directory / 'floor.log'))
        self.bare_processes = dict.fromkeys(('http', 'rpc', 'sql'), [self.floor.pid])
        self.floor.order('answer')
        self.bare = tuple(self.floor.order('serve', threads=THREADS))

    @contextlib.contextmanager
    def counted(self) -> Iterator[dict[str, int]]:
        counts: dict[str, int] = {}
        self._child.order('count')
        try:
            yield counts
        finally:
            counts |= self._child.order('counted')


    def start_times(self) -> Iterator[tuple[str, float]]:
        began = time.monotonic()
        with Child('tools.bench.embedded', str(self.directory / 'another'), HOST, str(THREADS),
                   log=self.directory / 'another.log'):
            yield 'standalone', time.monotonic() - began


def address(url: str) -> tuple[str, int]:
    """Host and port."""
    parts = urlsplit(url)
    return parts.hostname or '', parts.port or 80
