# SPDX-License-Identifier: Apache-2.0
"""A host that reports to the database, and the options of a process."""

import pytest

from cyborg.cmd import startup
from tests.fixtures.reporting_host import Host


@pytest.fixture
def host(db):
    """A host whose reports the engine takes, and whose handles requests take."""
    return Host(db)


@pytest.fixture
def configured(tmp_path):
    """Reads the configuration of a process from the text of its file, with messages in process."""

    def parse(text=''):
        file = tmp_path / 'cyborg.conf'
        file.write_text(f'[DEFAULT]\ntransport_url = kombu+memory:////\n{text}\n')
        return startup.configure(['--config-file', str(file)], default_config_files=[])

    startup.CONF.reset()
    yield parse
    startup.CONF.reset()
