# SPDX-License-Identifier: Apache-2.0
"""A simulated host, and drivers that look at it."""

import uuid

import pytest
from oslo_config import cfg

from cyborg import conf as options
from cyborg import objects
from cyborg.accelerator import driver
from cyborg.sim import Host


@pytest.fixture
def conf():
    conf = cfg.ConfigOpts()
    options.register(conf)
    for cls in driver.installed():  # so that tests can set them before they load a driver
        cls.register_options(conf)
    conf([], project='cyborg', default_config_files=[], default_config_dirs=[])
    return conf


@pytest.fixture
def configure(conf, tmp_path):
    """Read these lines as cyborg.conf."""

    def configure(text):
        path = tmp_path / 'cyborg.conf'
        path.write_text(text)
        conf(['--config-file', str(path)], project='cyborg', default_config_dirs=[])

    return configure


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / 'sys')


@pytest.fixture
def load(conf, host):
    """A driver by its name."""

    def load(name):
        [loaded] = driver.load([name], conf, host.sysfs)
        return loaded

    return load


@pytest.fixture
def stored():
    """A handle as the conductor gives it back: with a uuid."""

    def stored(handle, number=1):
        return objects.AttachHandle.of(
            {name: getattr(handle, name) for name in ('key', 'type', 'info', 'is_host_prepared')},
            uuid=str(uuid.UUID(int=number)),
        )

    return stored
