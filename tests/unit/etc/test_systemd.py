# SPDX-License-Identifier: Apache-2.0
"""The sample units for systemd start what we install, as the installation guide has it."""

import configparser
import pathlib
import shlex
import shutil
import subprocess

import pytest

from tests.unit.doc.test_installation import GUIDE, entry_points

ROOT = pathlib.Path(__file__).parents[3]
UNITS = sorted((ROOT / 'etc/systemd').glob('*.service'))
PREFIX = '/opt/cyborg/bin/'


def read(path):
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(path)
    return unit


def test_each_service_has_a_unit():
    assert [path.stem for path in UNITS] == ['cyborg-agent', 'cyborg-api', 'cyborg-conductor']


@pytest.mark.parametrize('path', UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_what_is_installed_with_a_file_of_the_guide(path):
    program, *arguments = shlex.split(read(path)['Service']['ExecStart'])
    assert program.startswith(PREFIX) and f'python3 -m venv {PREFIX.removesuffix("/bin/")}' in GUIDE
    # uWSGI is what the guide installs for the API
    assert program.removeprefix(PREFIX) in {*entry_points('console_scripts'), 'uwsgi'}
    assert f'/etc/cyborg/{pathlib.Path(arguments[-1]).name}' == arguments[-1]
    assert f':caption: {arguments[-1]}' in GUIDE


@pytest.mark.parametrize('path', UNITS, ids=lambda path: path.stem)
def test_a_unit_is_in_the_guide(path):
    assert path.stem in GUIDE and 'etc/systemd' in GUIDE


def test_services_on_one_host_do_not_take_the_state_directory_from_one_another():
    services = [read(path)['Service'] for path in UNITS]
    owners = {each['User'] for each in services if each.get('StateDirectory') == 'cyborg'}
    assert owners == {'cyborg'}


def test_the_agent_has_a_state_directory_as_root_and_as_another_user():
    path = next(path for path in UNITS if path.stem == 'cyborg-agent')
    service = read(path)['Service']
    # a command of another user may not make a directory in /var/lib; for root systemd would take
    # that of a conductor
    assert service['User'] == 'root' and '/var/lib/cyborg' in service['ExecStartPre']
    assert 'StateDirectory' not in service
    comment, *_ = path.read_text().partition('User=')
    for other in ('StateDirectory=cyborg', 'StateDirectoryMode=0700', 'ExecStartPre='):
        assert other in comment
    assert 'StateDirectory=cyborg' in GUIDE


@pytest.mark.skipif(shutil.which('systemd-analyze') is None, reason='systemd is not installed')
@pytest.mark.parametrize('path', UNITS, ids=lambda path: path.stem)
def test_systemd_finds_nothing_wrong_with_a_unit(path, tmp_path):
    programs = tmp_path / 'bin'
    programs.mkdir()
    text = path.read_text().replace(PREFIX, f'{programs}/').replace('User=cyborg', 'User=root')
    unit = tmp_path / path.name
    unit.write_text(text.replace('Group=cyborg', 'Group=root'))
    program = pathlib.Path(shlex.split(read(unit)['Service']['ExecStart'])[0])
    program.touch(mode=0o755)
    checked = subprocess.run(
        ['systemd-analyze', 'verify', '--man=no', unit], text=True, capture_output=True
    )
    about_it = [line for line in checked.stderr.splitlines() if path.name in line]
    assert (checked.returncode, about_it) == (0, []), checked.stderr
