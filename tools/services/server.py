# SPDX-License-Identifier: Apache-2.0
"""A private server: its directory, ports, credentials, start and end."""

import abc
import contextlib
import http
import http.client
import json
import os
import pathlib
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, ClassVar, Self

from tools.services import keeper

LOOPBACK = '127.0.0.1'
#: Seconds until a server must respond, on a busy machine.
PATIENCE = 180
#: Below the range of ports for outgoing connections, so that the kernel does not assign a
#: server's port while the server is down.
PORTS = range(20000, 32000)
#: ports that this process has assigned, on which no server may listen yet
_given: set[int] = set()


class Failed(Exception):
    """A server did not start; the message contains the end of its log."""


class Server(abc.ABC):
    """The base class of RabbitMQ, MariaDB and PostgreSQL.

    Use it as a context manager; inside, `url` is where it answers, `kill()` ends it abruptly,
    `stop()` in order, and `start()` brings it back with the data it had.
    """

    name: ClassVar[str]
    #: The signal that ends it as abruptly as a power cut.
    crash: ClassVar[signal.Signals] = signal.SIGKILL
    #: The signal by which it ends regularly, without waiting for its clients.
    halt: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self.user = 'cyborg'
        self.password = secrets.token_hex(12)
        self.port = free_port()
        self.directory = pathlib.Path()
        self._keeper: subprocess.Popen[str] | None = None

    # What a subclass implements

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The URL for oslo.messaging or SQLAlchemy."""

    @abc.abstractmethod
    def find_programs(self) -> None:
        """Find the programs, or raise Missing."""

    @abc.abstractmethod
    def prepare(self) -> None:
        """Create the files in the new directory."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """Return the command line of the server, which must stay in the foreground."""

    def environ(self) -> dict[str, str]:
        """Return the whole environment of its processes, without that of this process."""
        return {
            'PATH': f'{os.defpath}:/usr/sbin:/sbin',
            'HOME': str(self.directory),
            'LC_ALL': 'C.UTF-8',
            'TMPDIR': str(self.directory),
        }

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Return whether it responds to a client; any OSError counts as no."""

    def serves(self, path: str) -> bool:
        """Return whether a GET of this path is answered with 200: ``is_ready`` of a web service."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=10)
        try:
            connection.request('GET', path)
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()

    # Start and end

    def __enter__(self) -> Self:
        self.find_programs()
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f'cyborg-{self.name}-'))
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, '-I', keeper.__file__, str(self.directory)],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self.prepare()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it and wait until it responds."""
        if self._order('is_alive'):
            raise RuntimeError(f'{self.name} runs already.')
        self._order('start', argv=self.command(), env=self.environ(), crash=self.crash)
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if not self._order('is_alive'):
                raise Failed(f'{self.name} ended while starting:\n{self.log()}')
            if time.monotonic() > deadline:
                raise Failed(f'{self.name} did not answer within {PATIENCE} s:\n{self.log()}')
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill it; the data remain as they are at that moment."""
        self._order('end')

    def stop(self) -> None:
        """Stop it regularly; the data remain."""
        self._order('end', by=self.halt)

    def close(self) -> None:
        """Stop it and remove its directory."""
        running, self._keeper = self._keeper, None
        if running is None:
            with contextlib.suppress(OSError):
                self.directory.rmdir()  # it is still empty
            return
        # Send the command to quit; closing the input is not enough, since a fork may hold it open.
        with contextlib.suppress(BrokenPipeError), running.stdin as orders:
            orders.write('["quit", {}]\n')
        with running.stdout:
            running.wait()

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes of the server and its helpers."""
        return keeper.descendants_of(self._keeper.pid) if self._keeper else []

    def run(self, *argv: str, text: str = '') -> None:
        """Run a helper program of the server to its end."""
        if self._order('run', argv=argv, env=self.environ(), text=text):
            raise Failed(f'{argv[0]} failed:\n{self.log()}')

    def log(self, lines: int = 30) -> str:
        """Return the end of the log."""
        with contextlib.suppress(FileNotFoundError):
            return '\n'.join(
                (self.directory / 'log').read_text(errors='replace').splitlines()[-lines:]
            )
        return '(nothing was logged)'

    def _answers(self) -> bool:
        try:
            return self.is_ready()
        except OSError:
            return False

    def _order(self, order: str, **arguments: Any) -> Any:
        if self._keeper is None:
            raise RuntimeError(f'{self.name} is used outside its with block.')
        try:
            self._keeper.stdin.write(f'{json.dumps([order, arguments])}\n')
            self._keeper.stdin.flush()
            answer = json.loads(self._keeper.stdout.readline())
        except (BrokenPipeError, ValueError) as error:
            raise Failed(f'the keeper of {self.name} is gone') from error
        if 'error' in answer:
            raise Failed(f'{self.name}: {answer["error"]}')
        return answer['result']


def free_port() -> int:
    """Return a port of 127.0.0.1 that is neither in use nor assigned."""
    while True:
        port = random.choice(PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(('127.0.0.1', port))
            _given.add(port)
            return port
