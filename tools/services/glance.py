# SPDX-License-Identifier: Apache-2.0
"""A private Glance on SQLite and files, in its own virtual environment, that uses a Keystone."""

import os
import pathlib

from tools.services.keystone import REGION, ROOT
from tools.services.packages import Missing
from tools.services.server import LOOPBACK, Server

CONFIGURATION = """\
[DEFAULT]
use_stderr = true
enabled_backends = files:file
[database]
connection = sqlite:///{directory}/glance.db
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {directory}/images
[os_glance_staging_store]
filesystem_store_datadir = {directory}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {directory}/tasks
[paste_deploy]
flavor = keystone
config_file = {paste}
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
SERVE = """\
import waitress
from glance.wsgi import api
waitress.serve(api.application, host='{host}', port={port}, threads=4, ident='glance')
"""


class Glance(Server):
    """The caller must create its user and its endpoint in Keystone."""

    name = 'glance'

    def __init__(
        self,
        keystone: str,
        user: str,
        password: str,
        project: str,
        cafile: pathlib.Path | None = None,
    ) -> None:
        super().__init__()
        self._venv = pathlib.Path(
            os.environ.get('CYBORG_TEST_GLANCE_VENV', ROOT / '.venv-glance')
        ).absolute()
        self._facts = {
            'keystone': keystone,
            'user': user,
            'password': password,
            'project': project,
            'region': REGION,
            'more': f'cafile = {cafile}' if cafile else '',
            'paste': self._venv / 'etc' / 'glance' / 'glance-api-paste.ini',
        }

    @property
    def url(self) -> str:
        return f'http://{LOOPBACK}:{self.port}'

    def find_programs(self) -> None:
        if not (self._venv / 'bin' / 'glance-manage').exists():
            raise Missing('Glance is not installed; run: make .venv-glance')

    def prepare(self) -> None:
        (self.directory / 'glance-api.conf').write_text(
            CONFIGURATION.format(directory=self.directory, **self._facts)
        )
        self.run(
            str(self._venv / 'bin' / 'glance-manage'),
            '--config-file',
            str(self.directory / 'glance-api.conf'),
            'db_sync',
        )

    def command(self) -> list[str]:
        return [
            str(self._venv / 'bin' / 'python'),
            '-c',
            SERVE.format(host=LOOPBACK, port=self.port),
        ]

    def environ(self) -> dict[str, str]:
        return super().environ() | {'OS_GLANCE_CONFIG_DIR': str(self.directory)}

    def is_ready(self) -> bool:
        return self.serves('/versions')
