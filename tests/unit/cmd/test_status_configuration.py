# SPDX-License-Identifier: Apache-2.0
"""cyborg-status finds what is written in configuration files and has no effect."""

import pathlib
import re
import subprocess
import sys

import pytest

from cyborg.cmd import startup, status, status_configuration
from tests.fixtures import deployers

FACTS = {
    'transport': 'kombu+memory:////',
    'database': 'sqlite://',
    'keystone': 'http://127.0.0.1:1',
    'port': '6666',
}
GENERATOR = pathlib.Path(__file__).parents[3] / 'tools/config/cyborg-config-generator.conf'


@pytest.fixture
def said(tmp_path):
    """What the check says of a file."""

    def said(path):
        startup.CONF.reset()
        startup.configure(['--config-file', str(path)], default_config_files=[])
        result = status.Checks()._configuration()
        return result.code, result.details

    yield said
    startup.CONF.reset()


def written(tmp_path, text):
    path = tmp_path / 'cyborg.conf'
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ('name', 'sentences'),
    [
        (
            'kolla-ansible/cyborg.conf',
            [
                '[database] max_pool_size = 1: a conductor opens a connection for almost every '
                'message. Unset it, or set it to 12 or more.',
            ],
        ),
        (
            'openstack-helm/cyborg.conf',
            [
                'endpoint_type: not read.',
                '[service_catalog] is not read.',
                'rabbit_quorum_queues (is rabbit_quorum_queue meant?)',
            ],
        ),
        (
            'devstack/cyborg.conf',
            [
                '[agent] resource_provider_startup_retries: not read.',
                '[api] ramdisk_heartbeat_timeout: not read.',
                '[conductor] automated_clean: not read.',
                '[keystone] is not read.',
            ],
        ),
    ],
)
def test_options_of_deployment_tools_that_have_no_effect_are_named(said, tmp_path, name, sentences):
    path = deployers.write(name, tmp_path, directory=str(tmp_path), **FACTS)
    # a log file would stay open
    path.write_text(re.sub('^log_dir = .*', '', path.read_text(), flags=re.MULTILINE))
    code, details = said(path)
    assert code == status.CODE.WARNING
    assert [each for each in sentences if each not in details] == []
    # credentials of any plugin, and old names of options, are read
    for name in ('username', 'auth_strategy', 'application_credential', 'lock_path'):
        assert name not in details


@pytest.mark.parametrize(
    'name', sorted(str(path.relative_to(deployers.HERE)) for path in deployers.HERE.rglob('*.conf'))
)
def test_the_validator_of_oslo_config_accepts_the_files_of_deployment_tools(name, tmp_path):
    # kolla-ansible runs it before a deployment, and lists what it does not know
    path = deployers.write(name, tmp_path, directory=str(tmp_path), **FACTS)
    validator = pathlib.Path(sys.executable).parent / 'oslo-config-validator'
    files = '--config-file', GENERATOR, '--input-file', path
    done = subprocess.run([validator, *files], text=True, capture_output=True)
    assert 'Traceback' not in done.stderr, done.stderr
    wrong = [line for line in done.stderr.splitlines() if line.startswith('ERROR:')]
    assert [line for line in wrong if not line.endswith(' is not part of the sample config')] == []
    assert done.returncode == bool(wrong), done.stderr


def test_a_file_with_known_options_alone_is_fine(said, tmp_path):
    path = written(
        tmp_path,
        '[DEFAULT]\ndebug = false\n[nova]\nauth_section = somebody\nendpoint_type = internal\n'
        '[somebody]\nauth_type = v3applicationcredential\napplication_credential_id = a\n'
        '[cyborg_sys_admin]\nhelper_command = sudo\n[gpu_devices]\nenabled_vgpu_types = a\n',
    )
    assert said(path) == (
        status.CODE.SUCCESS,
        'Every option in the configuration files is read.',
    )


def test_sections_of_chosen_types_are_read_and_others_are_not(said, tmp_path):
    path = written(
        tmp_path,
        '[gpu_devices]\nenabled_vgpu_types = nvidia-231, nvidia-469\n'
        '[vgpu_nvidia-231]\ndevice_addresses = 0000:3b:00.0\n'
        '[vgpu_nvidia-469]\ndevice_adresses = 0000:af:00.0\n'
        '[vgpu_nvidia-35]\ndevice_addresses = 0000:d8:00.0\n',
    )
    details = said(path)[1]
    assert '[vgpu_nvidia-231]' not in details
    assert '[vgpu_nvidia-469] device_adresses (is device_addresses meant?): not read.' in details
    assert '[vgpu_nvidia-35] is not read.' in details


def test_credentials_that_no_section_uses_are_named(said, tmp_path):
    path = written(tmp_path, '[somebody]\nauth_type = password\nusername = a\n')
    assert '[somebody] is not read.' in said(path)[1]


def test_directories_of_files_are_looked_at_too(tmp_path):
    (tmp_path / 'conf.d').mkdir()
    written(tmp_path / 'conf.d', '[agent]\nenabled_driver = nvidia_gpu_driver\n')
    startup.CONF.reset()
    try:
        conf = startup.configure(
            ['--config-dir', str(tmp_path / 'conf.d')], default_config_files=[]
        )
        assert status_configuration.unread_options(conf) == [
            '[agent] enabled_driver (is enabled_drivers meant?): not read.'
        ]
    finally:
        startup.CONF.reset()


def test_the_options_are_those_of_the_sample_file():
    sampled = set(re.findall(r'^namespace = (\S+)', GENERATOR.read_text(), re.MULTILINE))
    assert {*status_configuration.NAMESPACES} == sampled
