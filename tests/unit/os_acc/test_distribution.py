# SPDX-License-Identifier: Apache-2.0
"""The distribution os-acc: the library alone, without what the rest of Cyborg needs."""

import email
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    """Built from the sources, with no index to ask; what a build leaves is not left here."""
    directory = tmp_path_factory.mktemp('wheel')
    source = shutil.copytree(
        ROOT / 'packages/os-acc',
        directory / 'os-acc',
        ignore=shutil.ignore_patterns('build', '*.egg-info', '__pycache__'),
    )
    built = subprocess.run(
        [
            sys.executable,
            '-m',
            'pip',
            '--disable-pip-version-check',
            'wheel',
            '--quiet',
            '--no-deps',
            '--no-index',
            '--no-build-isolation',
            '--wheel-dir',
            str(directory),
            str(source),
        ],
        text=True,
        capture_output=True,
        env=os.environ | {'PBR_VERSION': '1.2.3'},
    )
    assert built.returncode == 0, built.stderr
    [path] = directory.glob('*.whl')
    return path


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith('/METADATA')]
        return email.message_from_bytes(archive.read(name))


def test_it_holds_the_whole_library_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {
            name: archive.read(name) for name in archive.namelist() if '.dist-info/' not in name
        }
    files = [*(ROOT / 'os_acc').rglob('*.py'), ROOT / 'os_acc/py.typed']
    assert held == {str(path.relative_to(ROOT)): path.read_bytes() for path in files}


def test_it_needs_configuration_and_messages_only(wheel):
    said = metadata(wheel)
    assert said['Name'] == 'os-acc'
    needed = said.get_all('Requires-Dist')
    assert [each.partition('>=')[0] for each in needed] == ['oslo.config', 'oslo.messaging']
    # with the same bounds as Cyborg itself
    assert set(needed) <= set((ROOT / 'requirements.txt').read_text().splitlines())


def test_it_can_be_imported_from_its_wheel(wheel):
    code = 'import os_acc, os_acc.libvirt, os_acc.weigher; print(os_acc.__file__)'
    run = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c', code],
        text=True,
        cwd='/',
        capture_output=True,
        check=True,
        env={'PYTHONPATH': str(wheel)},
    )
    assert run.stdout.startswith(str(wheel))


def test_cyborg_does_not_ask_an_index_for_it():
    """Which has an unrelated os-acc 0.2.0; a checkout must install without ours being there."""
    required = (ROOT / 'requirements.txt').read_text().lower()
    assert 'os-acc' not in required and 'os_acc' not in required
    build = tomllib.loads((ROOT / 'pyproject.toml').read_text())['build-system']
    assert not any('acc' in each for each in build['requires'])
