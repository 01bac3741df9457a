# SPDX-License-Identifier: Apache-2.0
"""Databases that answer over TLS only, as the guide to high availability configures them."""

import os
import shutil
import subprocess

import pytest
import sqlalchemy as sa

from cyborg.db.sqlalchemy import engine
from tests.fixtures.certificates import Authority
from tests.fixtures.processes import BIN
from tools.services.servers import MariaDB, PostgreSQL


class SecuredMariaDB(MariaDB):
    """Refuses connections without TLS."""

    encryption = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"

    def __init__(self, authority):
        super().__init__()
        self._certificate, self._key = authority.issue('mariadb')

    def url_with(self, cafile):
        return f'{super().url.partition("?")[0]}?ssl_ca={cafile}'

    def command(self):
        return [
            *super().command(),
            f'--ssl-cert={self._certificate}',
            f'--ssl-key={self._key}',
            '--require-secure-transport=ON',
        ]


class SecuredPostgreSQL(PostgreSQL):
    """Refuses connections without TLS, apart from those of this machine's own programs."""

    encryption = 'SELECT pid, cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid()'

    def __init__(self, authority):
        super().__init__()
        self._files = authority.issue('postgresql')

    def url_with(self, cafile):
        return f'{super().url}?sslmode=verify-full&sslrootcert={cafile}'

    def prepare(self):
        super().prepare()
        data = self.directory / 'data'
        for source, name in zip(self._files, ('server.crt', 'server.key'), strict=True):
            shutil.copy(source, data / name)
            (data / name).chmod(0o600)
            if os.geteuid() == 0:
                shutil.chown(data / name, *self._account())
        (data / 'pg_hba.conf').write_text('hostssl all all 127.0.0.1/32 scram-sha-256\n')

    def command(self):
        return [*super().command(), '--ssl=on']


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path, 'cloud')


@pytest.fixture(params=[SecuredMariaDB, SecuredPostgreSQL])
def server(request, authority):
    with request.param(authority) as started:
        yield started


def test_cyborg_uses_a_database_over_tls(server, authority):
    database = engine.Database(server.url_with(authority.certificate))
    with database.reader() as session:
        [(_, cipher)] = session.execute(sa.text(server.encryption)).all()
    database.close()
    assert cipher


def dbsync(tmp_path, url):
    config = tmp_path / 'cyborg.conf'
    config.write_text(f'[database]\nconnection = {url}\nmax_retries = 1\nretry_interval = 1\n')
    return subprocess.run(
        [BIN / 'cyborg-dbsync', '--config-file', config, 'upgrade'],
        text=True,
        capture_output=True,
    )


def test_the_schema_is_made_over_tls(server, authority, tmp_path):
    done = dbsync(tmp_path, server.url_with(authority.certificate))
    assert done.returncode == 0, done.stderr


def test_a_server_that_somebody_else_has_certified_is_refused(server, tmp_path):
    done = dbsync(tmp_path, server.url_with(Authority(tmp_path, 'stranger').certificate))
    assert done.returncode == 1
    assert 'certificate verify failed' in done.stderr
    assert 'Traceback' not in done.stderr
