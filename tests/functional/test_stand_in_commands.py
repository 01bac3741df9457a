# SPDX-License-Identifier: Apache-2.0
"""The commands of a newcomer against a standalone: what the documentation shows."""

import os
import subprocess

import pytest

from tests.fixtures.bench import running
from tests.fixtures.commands import Commands

pytestmark = pytest.mark.clients


@pytest.fixture(scope='module')
def bench(tmp_path_factory):
    with running(tmp_path_factory.mktemp('bench')) as made:
        yield made


@pytest.fixture
def openstack(bench):
    commands = Commands('openstackclient', {})

    def openstack(*words):
        done = subprocess.run(
            [commands.program, *words],
            env={
                'PATH': os.environ['PATH'],
                'HOME': str(bench.directory),
                'OS_CLIENT_CONFIG_FILE': str(bench.directory / 'clouds.yaml'),
                'OS_CLOUD': 'cyborg-standalone',
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return openstack


def test_a_server_by_command_and_its_providers(openstack, bench, tmp_path):
    (tmp_path / 'any').write_text('no system')
    only = ('-f', 'value', '-c')
    openstack(
        *('accelerator', 'device', 'profile', 'create', 'two-vgpus', '--group', 'resources:VGPU=2')
    )
    openstack('image', 'create', '--file', tmp_path / 'any', 'any')
    server = ('server', 'create', '--flavor', 'two-vgpus', '--image', 'any', '--no-network')
    assert openstack(*server, '--wait', 'web', *only, 'status') == ['ACTIVE']
    assert openstack('accelerator', 'arq', 'list', *only, 'state') == ['Bound', 'Bound']
    providers = openstack('resource', 'provider', 'list', *only, 'name')
    assert {'compute1', 'compute1_0000:3b:00.0'} <= set(providers)
    openstack('server', 'delete', '--wait', 'web')
    assert bench.get('/v2/accelerator_requests')['arqs'] == []


def test_a_request_is_bound_to_a_server_by_hand(openstack, bench, tmp_path):
    (tmp_path / 'any').write_text('no system')
    only = ('-f', 'value', '-c')
    profile = bench.profile({'resources:CUSTOM_QAT': '1'})
    openstack('image', 'create', '--file', tmp_path / 'any', 'other')
    openstack(
        *('server', 'create', '--flavor', 'plain', '--image', 'other', '--no-network'),
        *('--wait', 'bare'),
    )
    [arq] = openstack('accelerator', 'arq', 'create', profile, *only, 'uuid')
    provider = next(
        each['rp_uuid']
        for each in bench.get('/v2/deployables')['deployables']
        if each['name'].endswith('6b:00.0')
    )
    bind = ('accelerator', 'arq', 'bind', arq, 'compute1', 'bare', provider)
    assert openstack(*bind, *only, 'state') == ['Bound']
    openstack('server', 'delete', '--wait', 'bare')
    assert bench.get('/v2/accelerator_requests')['arqs'] == []
