# SPDX-License-Identifier: Apache-2.0
"""The driver of the guide, installed by a package of its own, works without any other edit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import stevedore
from oslo_config import cfg

from cyborg import conf as options
from cyborg.accelerator import privileged, sysfs
from cyborg.agent import hotplug
from tests.fixtures import pages
from tests.fixtures.cloud import Cloud, eventually
from tests.fixtures.hosts import SimHost

GUIDE = Path(__file__).parents[2] / 'doc/source/contributor'
CARD, OTHER = '0000:3b:00.0', '0000:5e:00.0'
SHARED = {
    'driver': 'acme',
    'mdev': {
        'types': {
            'quarter': {'name': 'Acme Quarter', 'max_instance': 4},
            'half': {'name': 'Acme Half', 'max_instance': 2},
        }
    },
}


@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    """Where pip has installed the package of the guide."""
    directory = tmp_path_factory.mktemp('acme')
    shutil.copy(GUIDE / 'acme_turbo.py', directory)
    shutil.copy(GUIDE / 'acme_turbo.toml', directory / 'pyproject.toml')
    site = directory / 'site-packages'
    words = 'install --quiet --no-index --no-deps --no-build-isolation --target'
    subprocess.run([sys.executable, '-m', 'pip', *words.split(), site, directory], check=True)
    return site


@pytest.fixture
def acme(installed, monkeypatch):
    """The package is found by this process and by those that it starts."""
    monkeypatch.syspath_prepend(str(installed))
    others = os.environ.get('PYTHONPATH')
    monkeypatch.setenv('PYTHONPATH', os.pathsep.join(filter(None, (str(installed), others))))
    monkeypatch.setattr(stevedore.ExtensionManager, 'ENTRY_POINT_CACHE', {})
    yield
    sys.modules.pop('acme_turbo', None)


class AttentiveHost(SimHost):
    """A host that remembers what its agent listens to."""

    def monitor(self, on_event, subsystems):
        self.subsystems, self.on_event = set(subsystems), on_event
        return super().monitor(on_event, subsystems)


def test_the_guide_shows_how_it_is_checked(acme, tmp_path):
    page = 'contributor/drivers.rst'
    shutil.copy(GUIDE / 'acme_turbo.yaml', tmp_path / 'host.yaml')
    (tmp_path / 'acme.conf').write_text(pages.configuration(page))
    [step] = [each for each in pages.steps(page) if each.command.startswith('cyborg-sim ')]
    programs = Path(sys.executable).parent
    with pages.Shell(tmp_path, os.environ | {'PATH': f'{programs}:{os.environ["PATH"]}'}) as shell:
        shell.follow(step)


def test_its_options_are_in_the_sample_configuration(acme):
    generator = Path(sys.executable).parent / 'oslo-config-generator'
    sample = subprocess.run(
        [sys.executable, '-W', 'ignore', str(generator), '--namespace', 'cyborg'],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    section = sample.partition('[acme_turbo_driver]\n')[2].partition('\n[')[0]
    assert '#mdev_type = acme-quarter\n' in section
    assert '#resource_class = CUSTOM_NPU\n' in section


@pytest.mark.any_database
def test_an_agent_reads_its_options_and_listens_to_its_subsystems(acme, tmp_path):
    more = (
        '[agent]\nresync_interval = 3600\n'
        '[acme_turbo_driver]\nmdev_type = acme-half\nresource_class = CUSTOM_TURBO\n'
    )
    cloud = Cloud(tmp_path, more=more)
    cloud.start()
    try:
        host = cloud.host(make=AttentiveHost, drivers=['acme_turbo_driver'])
        assert host.subsystems == {'pci', 'mdev', 'acme'}
        cloud.rest()
        host.plug_in('1234:5678', at=CARD, **SHARED)
        provider = f'compute1_{CARD}'
        eventually(lambda: provider in cloud.providers())
        inventories = cloud.providers()[provider]['inventories']
        assert {name: each['total'] for name, each in inventories.items()} == {'CUSTOM_TURBO': 2}
        # an event of the driver's own subsystem makes the agent look again
        cloud.rest()
        looks, sync = [], cloud.agent().inventory.sync
        cloud.agent().inventory.sync = lambda: looks.append('look') or sync()
        host.on_event(hotplug.UdevEvent('change', 'acme', 'turbo0'))
        eventually(lambda: looks)
    finally:
        cloud.stop()


@pytest.fixture
def root(acme, tmp_path, monkeypatch):
    """The privileged helper with only this driver enabled, and a host with its card and another."""
    host = SimHost('compute1', tmp_path / 'sys', drivers=())
    host.plug_in('1234:5678', at=CARD, **SHARED)
    host.plug_in('8086:37c8', at=OTHER)
    for address in (CARD, OTHER):
        host.show(address, 'acme/power_limit', '75')
    tool = tmp_path / 'bin/acme-wipe'
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(0o755)
    (tmp_path / 'cyborg.conf').write_text('[agent]\nenabled_drivers = acme_turbo_driver\n')
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(['--config-file', str(tmp_path / 'cyborg.conf')], project='cyborg', default_config_dirs=[])
    privileged.context.set_client_mode(False)
    monkeypatch.setattr(sysfs, 'ROOT', host.sysfs.path.resolve())
    monkeypatch.setattr(cfg, 'CONF', conf)
    monkeypatch.setattr(privileged, 'TOOL_PATH', str(tool.parent))
    privileged._load.cache_clear()
    yield host.sysfs.path / 'bus/pci/devices'
    privileged._load.cache_clear()
    privileged.context.set_client_mode(True)


def test_root_writes_its_attributes_and_no_others(root):
    privileged.write(str(root / CARD / 'acme/power_limit'), 'none')
    assert (root / CARD / 'acme/power_limit').read_text().startswith('none')
    for place in (f'{OTHER}/acme/power_limit', f'{CARD}/driver_override', f'{CARD}/remove'):
        with pytest.raises(PermissionError, match=r'\(acme_turbo_driver\) writes'):
            privileged.write(str(root / place), '1')
    assert (root / OTHER / 'acme/power_limit').read_text().strip() == '75'


def test_root_runs_its_tool_and_no_other(root):
    assert privileged.run(['acme-wipe', '--free', CARD]) == f'--free {CARD}\n'
    for command in (['acme-wipe', CARD], ['acme-wipe', '--all', CARD], ['nvme', 'list']):
        with pytest.raises(PermissionError, match=r'\(acme_turbo_driver\) runs'):
            privileged.run(command)
