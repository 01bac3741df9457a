# SPDX-License-Identifier: Apache-2.0
"""A private Keystone on SQLite, in its own virtual environment with its own libraries."""

import os
import pathlib

from tools.services.packages import Missing
from tools.services.server import LOOPBACK, Server

REGION = 'here'
ROOT = pathlib.Path(__file__).parents[2]

CONFIGURATION = """\
[DEFAULT]
use_stderr = true
[database]
connection = sqlite:///{directory}/keystone.db
[identity]
password_hash_rounds = 4
[cache]
enabled = false
[fernet_tokens]
key_repository = {directory}/fernet
[credential]
key_repository = {directory}/credentials
"""
SERVE = """\
import waitress
from keystone.wsgi import api
waitress.serve(api.application, host='{host}', port={port}, threads=4, ident='keystone')
"""


class Keystone(Server):
    """A Keystone with the roles of its bootstrap and one administrator, called ``user``."""

    name = 'keystone'

    def __init__(self) -> None:
        super().__init__()
        self.user = 'admin'
        #: where clients find it, if that is a proxy in front of it; set it before the start
        self.public_url: str | None = None
        self._bin = (
            pathlib.Path(
                os.environ.get('CYBORG_TEST_KEYSTONE_VENV', ROOT / '.venv-keystone')
            ).absolute()
            / 'bin'
        )

    @property
    def url(self) -> str:
        return self.public_url or f'http://{LOOPBACK}:{self.port}/v3'

    def find_programs(self) -> None:
        if not (self._bin / 'keystone-manage').exists():
            raise Missing('Keystone is not installed; run: make .venv-keystone')

    def prepare(self) -> None:
        (self.directory / 'keystone.conf').write_text(
            CONFIGURATION.format(directory=self.directory)
        )
        self._manage('db_sync')
        for keys in ('fernet_setup', 'credential_setup'):
            self._manage(
                keys, '--keystone-user', str(os.geteuid()), '--keystone-group', str(os.getegid())
            )
        self._manage(
            'bootstrap',
            '--bootstrap-password',
            self.password,
            '--bootstrap-region-id',
            REGION,
            '--bootstrap-public-url',
            self.url,
            '--bootstrap-internal-url',
            self.url,
        )

    def _manage(self, *arguments: str) -> None:
        self.run(
            str(self._bin / 'keystone-manage'),
            '--config-file',
            str(self.directory / 'keystone.conf'),
            *arguments,
        )

    def command(self) -> list[str]:
        return [str(self._bin / 'python'), '-c', SERVE.format(host=LOOPBACK, port=self.port)]

    def environ(self) -> dict[str, str]:
        return super().environ() | {
            'OS_KEYSTONE_CONFIG_FILES': str(self.directory / 'keystone.conf')
        }

    def is_ready(self) -> bool:
        return self.serves('/v3')
