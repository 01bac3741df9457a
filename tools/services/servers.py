# SPDX-License-Identifier: Apache-2.0
"""How each of the three servers is configured, started and recognized as ready.

They are made fast, not durable: no server waits for the disk. Each still hands every commit to
the kernel, so killing the process loses nothing that it had confirmed.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess

from tools.services import packages
from tools.services.server import LOOPBACK, Server, free_port


class RabbitMQ(Server):
    """A broker with its own Erlang node, name daemon and cookie."""

    name = 'rabbitmq'

    def __init__(self) -> None:
        super().__init__()
        self.node_port = free_port()
        self.epmd_port = free_port()

    @property
    def url(self) -> str:
        return f'rabbit://{self.user}:{self.password}@{LOOPBACK}:{self.port}/'

    def find_programs(self) -> None:
        # Not the one in PATH: that is a wrapper that insists on user rabbitmq.
        self.program = packages.require(
            'rabbitmq-server',
            'rabbitmq-server',
            '/usr/lib/rabbitmq/bin',
            '/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin',
        )

    def prepare(self) -> None:
        (self.directory / 'rabbitmq.conf').write_text(
            f'listeners.tcp.1 = {LOOPBACK}:{self.port}\n'
            f'default_user = {self.user}\n'
            f'default_pass = {self.password}\n'
            'log.file = false\n'
            'log.console = true\n'
            # The memory and disk usage of other programs must not block publishers.
            'vm_memory_high_watermark.absolute = 1GB\n'
            'disk_free_limit.absolute = 10MB\n'
        )
        (self.directory / 'enabled_plugins').write_text('[].\n')

    def command(self) -> list[str]:
        return [self.program]

    def environ(self) -> dict[str, str]:
        at = self.directory
        return super().environ() | {
            'RABBITMQ_NODENAME': f'cyborg{self.port}@localhost',
            'RABBITMQ_DIST_PORT': str(self.node_port),
            'RABBITMQ_MNESIA_BASE': str(at / 'mnesia'),
            'RABBITMQ_LOG_BASE': str(at / 'logs'),
            'RABBITMQ_CONFIG_FILE': str(at / 'rabbitmq.conf'),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(at / 'enabled_plugins'),
            'RABBITMQ_CONF_ENV_FILE': str(at / 'none'),
            'RABBITMQ_GENERATED_CONFIG_DIR': str(at / 'generated'),
            'RABBITMQ_PID_FILE': str(at / 'pid'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS': '-kernel inet_dist_use_interface {127,0,0,1}',
            'ERL_EPMD_PORT': str(self.epmd_port),
            'ERL_EPMD_ADDRESS': LOOPBACK,
        }

    def is_ready(self) -> bool:
        # The listener starts last. A method frame in response to the protocol header shows that
        # the broker is ready, not only the socket.
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as client:
            client.sendall(b'AMQP\x00\x00\x09\x01')
            return client.recv(1) == b'\x01'


class MariaDB(Server):
    """A database server with one user that has all privileges."""

    name = 'mariadb'

    @property
    def url(self) -> str:
        # It offers no TLS. Without this option PyMySQL reads all certificates of the machine for
        # each connection.
        return (
            f'mysql+pymysql://{self.user}:{self.password}@{LOOPBACK}:{self.port}/cyborg'
            '?charset=utf8mb4&ssl_disabled=true'
        )

    def find_programs(self) -> None:
        self.program = packages.require('mariadb-server', 'mariadbd')
        self.installer = packages.require('mariadb-server', 'mariadb-install-db')

    def prepare(self) -> None:
        (self.directory / 'init.sql').write_text(
            'CREATE DATABASE IF NOT EXISTS cyborg CHARACTER SET utf8mb4;\n'
            f"CREATE USER IF NOT EXISTS '{self.user}'@'{LOOPBACK}' "
            f"IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'{LOOPBACK}' WITH GRANT OPTION;\n"
        )
        self.run(
            self.installer,
            *self._options(),
            '--auth-root-authentication-method=normal',
            '--skip-test-db',
        )

    def command(self) -> list[str]:
        at = self.directory
        return [
            self.program,
            *self._options(),
            f'--bind-address={LOOPBACK}',
            f'--port={self.port}',
            f'--socket={at / "socket"}',
            f'--pid-file={at / "pid"}',
            f'--init-file={at / "init.sql"}',
            '--skip-name-resolve',
            # Written at each commit, flushed to disk periodically.
            '--innodb-flush-log-at-trx-commit=2',
            '--innodb-doublewrite=0',
            '--innodb-buffer-pool-size=64M',
            '--max-connections=500',
        ]

    def is_ready(self) -> bool:
        # The server sends first: three bytes of length, a sequence number, protocol version 10.
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as client:
            return client.recv(5)[4:] == b'\x0a'

    def _options(self) -> list[str]:
        # It runs as root only with this option.
        user = ['--user=root'] if os.geteuid() == 0 else []
        return [
            '--no-defaults',
            *user,
            f'--datadir={self.directory / "data"}',
            f'--tmpdir={self.directory}',
        ]


class PostgreSQL(Server):
    """A database server with one superuser. PostgreSQL refuses to run as root, so root starts it
    under another account."""

    name = 'postgresql'
    #: Immediate shutdown: no checkpoint, and the log is replayed at the next start. SIGKILL has
    #: the same effect on the data, but leaves shared memory behind.
    crash = signal.SIGQUIT
    #: Fast shutdown. SIGTERM would wait until the last client has left.
    halt = signal.SIGINT

    @property
    def url(self) -> str:
        return f'postgresql+psycopg2://{self.user}:{self.password}@{LOOPBACK}:{self.port}/cyborg'

    def find_programs(self) -> None:
        self.initdb, self.program, self.probe = (
            packages.require('postgresql', name, '/usr/lib/postgresql/*/bin')
            for name in ('initdb', 'postgres', 'pg_isready')
        )

    def prepare(self) -> None:
        (self.directory / 'password').write_text(self.password)
        if os.geteuid() == 0:
            for path in (self.directory, self.directory / 'password'):
                shutil.chown(path, *self._account())
        self.run(
            *self._as_account(),
            self.initdb,
            f'--pgdata={self.directory / "data"}',
            f'--username={self.user}',
            f'--pwfile={self.directory / "password"}',
            '--auth=scram-sha-256',
            '--encoding=UTF8',
            '--locale=C.UTF-8',
            '--no-sync',
        )
        self.run(
            *self._as_account(),
            self.program,
            '--single',
            '-D',
            str(self.directory / 'data'),
            'postgres',
            text='CREATE DATABASE cyborg;\n',
        )

    def command(self) -> list[str]:
        settings = {
            'listen_addresses': LOOPBACK,
            'port': self.port,
            'unix_socket_directories': self.directory,
            'max_connections': 300,
            'fsync': 'off',
            'full_page_writes': 'off',
            'dynamic_shared_memory_type': 'mmap',
        }
        return [
            *self._as_account(),
            self.program,
            '-D',
            str(self.directory / 'data'),
            *(f'--{name}={value}' for name, value in settings.items()),
        ]

    def is_ready(self) -> bool:
        return not subprocess.run(
            [self.probe, '--quiet', f'--host={LOOPBACK}', f'--port={self.port}']
        ).returncode

    def _as_account(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        user, group = self._account()
        return ['setpriv', f'--reuid={user}', f'--regid={group}', '--clear-groups', '--']

    @staticmethod
    def _account() -> tuple[int, int]:
        for name in ('postgres', 'nobody'):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return entry.pw_uid, entry.pw_gid
        raise packages.Missing('PostgreSQL does not run as root and there is no other account.')
