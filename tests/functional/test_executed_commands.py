# SPDX-License-Identifier: Apache-2.0
"""The commands that pages show are executed: here against a standalone, by other tests, or not at
all for a reason."""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
from http import HTTPStatus

import pytest
import requests

from tests.fixtures import pages, shown
from tests.fixtures.commands import directory_of

pytestmark = pytest.mark.embedded
PROGRAMS = pathlib.Path(sys.executable).parent
#: pages whose commands are executed here, as far as NOT_HERE does not name them
HERE = (
    'user/standalone.rst',
    'user/usage.rst',
    'admin/installation.rst',
    'admin/cleaning.rst',
    'admin/images.rst',
    'admin/operations.rst',
    'admin/device-profiles.rst',
    'admin/upgrade.rst',
    'admin/vgpu-handover.rst',
    'contributor/simulation.rst',
)
# why a command is not executed here
ROOT = 'it changes the machine, and needs root'
HARDWARE = 'it needs the card itself'
KEYSTONE = 'the stand-in for Keystone only issues tokens'
NOVA = 'the stand-in for Nova makes a flavor of each profile, and no others'
#: page -> how its commands begin -> the reason
NOT_HERE = {
    'admin/cleaning.rst': {'ls /sys/': HARDWARE},
    'admin/drivers/intel_gpu.rst': {'cd /sys/': HARDWARE, 'echo ': HARDWARE},
    'admin/drivers/intel_qat.rst': {'cd /sys/': HARDWARE, 'echo ': HARDWARE},
    'admin/installation.rst': {
        'python3 -m venv /opt/': ROOT,
        '/opt/cyborg/bin/pip': ROOT,
        'PATH=$PATH:/opt/': ROOT,
        'useradd': ROOT,
        'install -m': ROOT,
        'systemctl': ROOT,
        'openstack user create': KEYSTONE,
        'openstack role add': KEYSTONE,
        'openstack service create': KEYSTONE,
        'for interface in': KEYSTONE,
        'openstack flavor create': NOVA,
        'openstack server create': NOVA,
        'cyborg-dbsync upgrade': 'a standalone has done it; tests/functional/test_upgrade.py',
    },
    'admin/operations.rst': {
        'cyborg-manage host forget': 'the agent lives; tests/functional/test_manage_engine.py',
    },
    'admin/quota.rst': {'openstack ': KEYSTONE},
    'admin/takeover.rst': {
        'cyborg-manage import': 'it needs another database; tests/functional/test_takeover.py',
    },
    'admin/vgpu-handover.rst': {'openstack flavor set': NOVA},
    'contributor/drivers.rst': {
        'cyborg-sim check': 'tests/functional/test_out_of_tree_driver.py',
        '/opt/cyborg/bin/pip': ROOT,
        'systemctl': ROOT,
    },
    'contributor/os-acc.rst': {
        'make wheels': 'tests/unit/os_acc/test_distribution.py',
        '/opt/nova/bin/pip': ROOT,
    },
    'contributor/simulation.rst': {
        'cyborg-sim check': 'tests/functional/test_out_of_tree_driver.py',
        'cyborg-sim mount': 'it needs namespaces; tests/kernel',
        'cd /sys/kernel': 'inside of the command before it; tests/kernel',
        'echo ': 'inside of the command before it; tests/kernel',
        'python -m tools.bench': 'it takes minutes; tests/functional/test_bench.py',
        'python -m tools.fleet': 'it needs servers; tests/functional/test_fleet.py',
    },
    'contributor/testing.rst': {'.venv/bin/python -m tools.services': 'it runs all tests'},
    'user/commands.rst': {'pip install': 'make .venv-clients does it'},
    'user/fpga-as-a-service.rst': {'': 'tests/functional/test_fpga_pages.py'},
    'user/functions-on-request.rst': {'': 'tests/functional/test_fpga_pages.py'},
    'user/guide.rst': {'': 'tests/functional/test_fpga_pages.py'},
    'user/preprogrammed-functions.rst': {'': 'tests/functional/test_fpga_pages.py'},
    'user/standalone.rst': {
        'cyborg-standalone run': 'another one; tests/functional/test_workbench_starts.py',
    },
}


def reason(step):
    """Why a command is not executed here, or None."""
    page = step.place.rpartition(':')[0]
    for beginning, why in NOT_HERE.get(page, {}).items():
        if step.command.startswith(beginning):
            return why
    return None if page in HERE else 'nobody has decided it'


def all_steps():
    return itertools.chain.from_iterable(map(pages.steps, shown.names()))


def test_each_command_is_executed_or_has_a_reason():
    assert [step.place for step in all_steps() if reason(step) == 'nobody has decided it'] == []


def test_each_reason_is_of_a_command_that_a_page_shows():
    for page, reasons in NOT_HERE.items():
        commands = [step.command for step in pages.steps(page)]
        for beginning, why in reasons.items():
            assert any(each.startswith(beginning) for each in commands), (page, beginning)
            for path in re.findall(r'tests/[\w/]+(?:\.py)?', why):
                assert (shown.ROOT / path).exists(), path


@pytest.fixture(scope='module')
def shared_shell(tmp_path_factory):
    """A shell beside a running standalone, with the files that the pages name."""
    directory = tmp_path_factory.mktemp('newcomer')
    for name in ('README.rst', 'gzip.gbs'):
        (directory / name).write_text('any content')
    (directory / 'host.yaml').write_text(
        (shown.ROOT / 'cyborg/sim/data/demo-host.yaml').read_text()
    )
    process = subprocess.Popen(
        [PROGRAMS / 'cyborg-standalone', 'run', '--port', '0'],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        for line in process.stdout:
            if port := re.search(r'http://127\.0\.0\.1:(\d+)', line):
                break
        # commands that a page shows without --config-file find it here
        (directory / '.cyborg').mkdir()
        (directory / '.cyborg/cyborg.conf').symlink_to(directory / 'cyborg-standalone/cyborg.conf')
        client = directory_of('openstackclient')
        environ = {
            'PATH': f'{PROGRAMS}:{client}:{os.environ["PATH"]}',
            'HOME': str(directory),
            'LANG': 'C.UTF-8',
            'OS_CLIENT_CONFIG_FILE': str(directory / 'cyborg-standalone/clouds.yaml'),
            'OS_CLOUD': 'cyborg-standalone',
        }
        (directory / '.curlrc').write_text('fail-with-body\nsilent\nshow-error\n')
        with pages.Shell(directory, environ) as made:
            made.port = port[1]
            yield made
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.close()
        assert process.wait() == 0


@pytest.fixture
def shell(shared_shell):
    """The shell, for one page: the profiles that it creates are deleted after it."""
    yield shared_shell
    url = f'http://127.0.0.1:{shared_shell.port}/v2/device_profiles'
    for profile in requests.get(url, timeout=pages.PATIENCE).json()['device_profiles']:
        response = requests.delete(f'{url}/{profile["uuid"]}', timeout=pages.PATIENCE)
        # a server that the page does not delete uses its profile
        assert response.status_code in (HTTPStatus.NO_CONTENT, HTTPStatus.CONFLICT), response.text


#: what a page says is there already
BEFORE = {
    'user/standalone.rst': [
        'openstack accelerator device profile create one-t4'
        ' --group resources:VGPU=1,trait:CUSTOM_NVIDIA_1EB8_T4_2Q=required'
    ],
    'admin/device-profiles.rst': [
        "curl -H 'Content-Type: application/json' http://127.0.0.1:{port}/v2/device_profiles -d"
        ' \'[{{"name": "gzip", "uuid": "5d0e2ab1-3f5c-4b7e-9a35-0b1c7c2d9f10",'
        ' "groups": [{{"resources:CUSTOM_FPGA": "1"}}]}}]\''
    ],
}
#: what another place has: as the page shows it -> as it is here
PLACES = {
    'https://controller/accelerator': 'http://127.0.0.1:{port}',
    ':6666': ':{port}',
    'compute7': 'compute1',
    ' DIR --root OTHER': ' recorded --root built',
    ' DIR ': ' built ',
    'record host.yaml': 'record --root built recorded.yaml',
}


@pytest.mark.clients
@pytest.mark.parametrize('page', HERE)
def test_the_commands_of_a_page_do_what_it_says(shell, page):
    for command in BEFORE.get(page, []):
        status, printed = shell.run(command.format(port=shell.port))
        assert status == 0, printed
    for step in pages.steps(page):
        if reason(step) is not None:
            continue
        command = step.command
        for there, here in PLACES.items():
            command = command.replace(there, here.format(port=shell.port))
        shell.follow(pages.Step(step.place, command, step.output, step.fails))
