# SPDX-License-Identifier: Apache-2.0
"""A private Placement that uses a Keystone and a database server."""

import pathlib
import sys

from tools.services.keystone import REGION
from tools.services.server import LOOPBACK, Server

CONFIGURATION = """\
[DEFAULT]
use_stderr = true
[placement_database]
connection = {database}
[api]
auth_strategy = keystone
[keystone_authtoken]
www_authenticate_uri = {keystone}
auth_url = {keystone}
auth_type = password
username = {user}
password = {password}
project_name = {project}
user_domain_id = default
project_domain_id = default
region_name = {region}
{more}
"""
SYNC = """\
import sys
from placement.cmd import manage
sys.argv = ['placement-manage', '--config-file', '{file}', 'db', 'sync']
sys.exit(manage.main())
"""
SERVE = """\
import waitress
from placement.wsgi import api
waitress.serve(api.application, host='{host}', port={port}, threads=8, ident='placement')
"""


class Placement(Server):
    """The caller must create its database, and its user and its endpoint in Keystone."""

    name = 'placement'

    def __init__(
        self,
        database: str,
        keystone: str,
        user: str,
        password: str,
        project: str,
        cafile: pathlib.Path | None = None,
    ) -> None:
        super().__init__()
        self._facts = {
            'database': database.replace('%', '%%'),
            'keystone': keystone,
            'user': user,
            'password': password,
            'project': project,
            'region': REGION,
            'more': f'cafile = {cafile}' if cafile else '',
        }

    @property
    def url(self) -> str:
        return f'http://{LOOPBACK}:{self.port}'

    def find_programs(self) -> None:
        """It is installed where this runs."""

    def prepare(self) -> None:
        file = self.directory / 'placement.conf'
        file.write_text(CONFIGURATION.format(**self._facts))
        self.run(sys.executable, '-c', SYNC.format(file=file))

    def command(self) -> list[str]:
        return [sys.executable, '-c', SERVE.format(host=LOOPBACK, port=self.port)]

    def environ(self) -> dict[str, str]:
        return super().environ() | {'OS_PLACEMENT_CONFIG_DIR': str(self.directory)}

    def is_ready(self) -> bool:
        return self.serves('/')
