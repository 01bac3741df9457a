# SPDX-License-Identifier: Apache-2.0
"""Servers that take over from each other: a Galera cluster, a proxy in front of it, brokers of
one cluster, and a PostgreSQL with a standby."""

import os
import pathlib
import shutil
import socket
from collections.abc import Sequence

from tools.services import packages
from tools.services.server import Server, free_port
from tools.services.servers import LOOPBACK, MariaDB, PostgreSQL, RabbitMQ

GALERA = '/usr/lib/galera/libgalera_smm.so'
HAPROXY = """\
global
    maxconn 200
defaults
    timeout connect 2s
{listen}
"""


class GaleraNode(MariaDB):
    """A node of a cluster. The first one is started alone; others name it and copy its data."""

    name = 'galera'

    def __init__(self, first: 'GaleraNode | None' = None) -> None:
        super().__init__()
        self.group_port, self._copy_port, self._catch_up_port = (free_port() for _ in range(3))
        self._first = first
        #: the other nodes, which one that returns looks for
        self.peers: Sequence[GaleraNode] = [first] if first else []
        if first is not None:
            self.password = first.password

    def find_programs(self) -> None:
        super().find_programs()
        packages.require('rsync', 'rsync')
        if not pathlib.Path(GALERA).exists():
            raise packages.Missing('Galera is not installed: apt-get install galera-4')

    def prepare(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.directory, 'mysql')
        super().prepare()

    def _options(self) -> list[str]:
        # as root, rsync would copy the data to another account
        return [each.replace('--user=root', '--user=mysql') for each in super()._options()]

    def command(self) -> list[str]:
        peers = ','.join(f'{LOOPBACK}:{each.group_port}' for each in self.peers)
        provider = {
            'gmcast.listen_addr': f'tcp://{LOOPBACK}:{self.group_port}',
            'ist.recv_addr': f'{LOOPBACK}:{self._catch_up_port}',
            'base_host': LOOPBACK,
            'base_port': self.group_port,
            'gcache.size': '16M',
        }
        return [
            *super().command(),
            '--wsrep-on=ON',
            f'--wsrep-provider={GALERA}',
            f'--wsrep-cluster-address=gcomm://{peers}',
            f'--wsrep-provider-options={";".join(f"{k}={v}" for k, v in provider.items())}',
            f'--wsrep-node-address={LOOPBACK}:{self.group_port}',
            f'--wsrep-node-name=node{self.port}',
            '--wsrep-sst-method=rsync',
            f'--wsrep-sst-receive-address={LOOPBACK}:{self._copy_port}',
            '--binlog-format=ROW',
            '--innodb-autoinc-lock-mode=2',
        ]

    def environ(self) -> dict[str, str]:
        # the script that copies the data is found by the PATH
        return super().environ() | {'PATH': f'{os.defpath}:/usr/bin:/usr/sbin:/sbin'}


class HAProxy(Server):
    """A proxy in front of database servers, with a `listen` section as an operator writes it."""

    name = 'haproxy'

    def __init__(self, listen: str) -> None:
        super().__init__()
        self._listen = listen

    @property
    def url(self) -> str:
        return f'tcp://{LOOPBACK}:{self.port}'

    def find_programs(self) -> None:
        self.program = packages.require('haproxy', 'haproxy')

    def prepare(self) -> None:
        (self.directory / 'haproxy.cfg').write_text(HAPROXY.format(listen=self._listen))

    def command(self) -> list[str]:
        return [self.program, '-db', '-f', str(self.directory / 'haproxy.cfg')]

    def is_ready(self) -> bool:
        # the connection lasts only if a server is behind it
        with socket.create_connection((LOOPBACK, self.port), timeout=5) as client:
            return bool(client.recv(1))


class Standby(PostgreSQL):
    """Follows a primary, which waits for it at each COMMIT, until it is promoted."""

    name = 'standby'

    def __init__(self, primary: PostgreSQL) -> None:
        super().__init__()
        self._primary = primary
        self.password = primary.password

    def find_programs(self) -> None:
        super().find_programs()
        self._copy, self._control = (
            packages.require('postgresql', name, '/usr/lib/postgresql/*/bin')
            for name in ('pg_basebackup', 'pg_ctl')
        )

    def prepare(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.directory, *self._account())
        self.run(
            *self._as_account(),
            self._copy,
            f'--host={LOOPBACK}',
            f'--port={self._primary.port}',
            f'--username={self.user}',
            f'--pgdata={self.directory / "data"}',
            '--write-recovery-conf',
            '--checkpoint=fast',
            '--no-sync',
        )

    def promote(self) -> None:
        """Make it the primary."""
        self.run(*self._as_account(), self._control, 'promote', '-D', str(self.directory / 'data'))

    def environ(self) -> dict[str, str]:
        return super().environ() | {'PGPASSWORD': self.password}


class ClusteredRabbitMQ(RabbitMQ):
    """A broker of a cluster. The first one is started alone; others name it and join it."""

    def __init__(self, first: 'ClusteredRabbitMQ | None' = None) -> None:
        super().__init__()
        self._first = first
        if first is not None:
            # they find each other by the same name daemon, and let each other in
            self.password, self.epmd_port = first.password, first.epmd_port

    def prepare(self) -> None:
        super().prepare()
        first = self._first or self
        with (self.directory / 'rabbitmq.conf').open('a') as options:
            options.write(
                'cluster_formation.peer_discovery_backend = classic_config\n'
                f'cluster_formation.classic_config.nodes.1 = cyborg{first.port}@localhost\n'
            )
        cookie = self.directory / '.erlang.cookie'
        cookie.write_text(first.password)
        cookie.chmod(0o400)
